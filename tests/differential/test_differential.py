"""The stock allocator and npualloc do the same."""

import os
import re
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

from sidebyside.campaign import Counts, check, report  # noqa: E402
from sidebyside.compare import compare  # noqa: E402
from sidebyside.generate import script  # noqa: E402
from sidebyside.process import Pair  # noqa: E402
from sidebyside.shrink import shrink  # noqa: E402

MIB = 1 << 20

CASES = {
    "sizes at the borders": [
        ["alloc", n, size, 0]
        for n, size in enumerate([0, 1, 480, 481, MIB - 32, MIB, 10 * MIB, 20 * MIB - 32, 20 * MIB])
    ],
    "free what is no block": [["raw", 0, 4096, 0], ["bad_free", "inside"],
                              ["bad_free", "unknown"], ["bad_free", "null"]],
    "more than an exabyte": [["alloc", 0, 1 << 60, 0]],
    "a use on another stream": [
        ["alloc", 0, 30 * MIB, 0], ["use", 0, 1], ["free", 0], ["alloc", 1, 30 * MIB, 0],
        ["sync", 1], ["alloc", 2, 30 * MIB, 0], ["snapshot"]],
    "out of memory": [["capacity", 100 * MIB], ["alloc", 0, 90 * MIB, 0],
                      ["alloc", 1, 60 * MIB, 0], ["free", 0], ["alloc", 2, 60 * MIB, 0]],
    "above the fraction": [["fraction", 0.001], ["alloc", 0, 300 * MIB, 0], ["fraction", 1.0],
                           ["alloc", 1, 300 * MIB, 0]],
    "a pool": [["pool_new", 0, False, False], ["pool_begin", 0], ["alloc", 0, 3 * MIB, 0],
               ["pool_end"], ["alloc", 1, 3 * MIB, 0], ["pool_snapshot", 0], ["free", 0],
               ["pool_drop", 0], ["empty_cache"], ["snapshot"]],
    "history": [["history", "all", 1000], ["alloc", 0, 3 * MIB, 0], ["use", 0, 1], ["free", 0],
                ["empty_cache"], ["snapshot"]],
    "pools that were never made": [["pool_wrong", "_npu_endAllocateToPool"],
                                   ["pool_wrong", "_npu_releasePool"],
                                   ["pool_wrong", "_npu_getCheckpointState"],
                                   ["alloc", 0, 3 * MIB, 0], ["snapshot"]],
    "a checkpoint": [["pool_new", 0, False, False], ["pool_begin", 0], ["alloc", 0, 3 * MIB, 0],
                     ["alloc", 1, 700, 0], ["checkpoint", 0], ["free", 1],
                     ["alloc", 2, 30 * MIB, 0], ["restore", 0], ["alloc", 3, 5 * MIB, 0],
                     ["pool_end"], ["pool_live", 0, [0, 3]], ["snapshot"], ["free", 0],
                     ["restore", 0], ["restore_foreign", 0], ["pool_drop", 0], ["empty_cache"]],
    "two devices": [["alloc_on", 0, 3 * MIB, 1], ["alloc_on", 1, 30 * MIB, 0], ["stats_on", 1],
                    ["use", 1, 2], ["free", 1], ["free", 0], ["stats_on", 1], ["empty_cache"],
                    ["stats_on", 1], ["alloc_on", 2, 90 << 30, 1], ["stats_on", 1]],
    "settings that can't change now": [
        ["alloc", 0, 3 * MIB, 0], ["setting", "page_size:1g"],
        ["setting", "garbage_collection_threshold:0.5"], ["setting", "base_addr_aligned_kb:8"],
        ["setting", "roundup_power2_divisions:4"], ["setting", "nonsense:1"],
        ["alloc", 1, 5 * MIB + 1, 0], ["summary", False]],
}


@pytest.fixture(
    scope="module",
    params=[("", False), ("expandable_segments:True", False), ("", True)],
    ids=["fixed", "virtual", "virtual-unasked"],
)
def pair(request, plugin, tmp_path_factory):
    conf, unasked = request.param
    made = Pair(plugin, conf, tmp_path_factory.mktemp("drivers"), unasked)
    yield made
    made.close()


@pytest.mark.parametrize("name", CASES)
def test_by_hand(pair, name):
    mismatch = check(pair, CASES[name], Counts())
    assert mismatch is None, report(pair, CASES[name], mismatch, name)


def test_random(pair, request, capsys):
    first, count = request.config.getoption("--seed"), request.config.getoption("--count")
    counts, reports, kinds = Counts(), [], set()
    for seed in range(first, first + count):
        made = script(seed, pair.virtual, pair.unasked)
        mismatch = check(pair, made, counts)
        if mismatch and mismatch.kind(made) not in kinds and len(kinds) < 5:
            kinds.add(mismatch.kind(made))
            reports.append(report(pair, made, mismatch, f"seed {seed}"))
    with capsys.disabled():
        unasked = ", virtual segments unasked" if pair.unasked else ""
        print(f"\nsettings {pair.conf!r}{unasked}: {counts.text()}")
    assert not reports, "\n\n".join(reports)


def test_a_difference_is_seen_and_shrunk(pair):
    """The comparison itself: stock's outcome of another script is no match."""
    good = [["alloc", 0, 1000, 0], ["alloc", 1, 2000, 0], ["free", 0]]
    bad = [["alloc", 0, 1000, 0], ["alloc", 1, 3000, 0], ["free", 0]]
    stock, _ = pair.run(good, detailed=True)
    _, subject = pair.run(bad, detailed=True)
    mismatch, _ = compare(stock, subject)
    # Where looking would change what is tested, nobody looks after each operation.
    assert mismatch.step == (None if pair.unasked else 1)
    assert "requested_bytes.all.current" in mismatch.what
    assert shrink(good, lambda part: ["free", 0] in part) == [["free", 0]]


def test_running_out_of_memory_alone_is_a_mismatch_where_there_is_room(pair):
    """What npualloc's own error says of the device decides."""
    script = [["fraction", 0.001], ["alloc", 0, 80 * MIB, 0]]
    good, _ = pair.run([["fraction", 1.0], script[1]], detailed=True)
    _, failed = pair.run(script, detailed=True)
    good["steps"][0] = failed["steps"][0]
    assert compare(good, failed, script)[0] is None
    given, figures = failed["steps"][1]
    text = re.sub("[0-9.]+ MiB allowed;", "1.00 GiB allowed;", given["text"])
    failed["steps"][1] = [given | {"text": text}, figures]
    mismatch, _ = compare(good, failed, script)
    assert (mismatch.step, list(mismatch.what)) == (1, ["out of memory with room"])


def test_a_crash_is_a_mismatch_unless_it_is_stocks_alone(pair):
    stock, subject = pair.run([["alloc", 0, 1000, 0]], detailed=True)
    crash = {"crash": "signal 11"}
    assert compare(crash, subject) == (None, {"crash of stock only"})
    assert compare(crash, subject | {"device": ["a leak"]})[0] is not None
    for one in (stock, crash):
        assert compare(one, crash)[0] is not None


def test_what_the_device_would_punish_is_a_mismatch(pair):
    """Hazards and leaks are looked for after each script, and are npualloc's to explain."""
    script = [["alloc", 0, 1000, 0], ["free", 0]]
    stock, subject = pair.run(script, detailed=True)
    assert (stock["device"], subject["device"]) == ([], [])
    assert compare(stock, subject)[0] is None
    found = ["free under pending work, 2097152 bytes, by aclnnAdd"]
    assert compare(stock | {"device": found}, subject)[0] is None
    mismatch, _ = compare(stock, subject | {"device": found})
    assert mismatch.what["device"] == ([], found)
