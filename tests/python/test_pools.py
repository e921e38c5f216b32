"""Memory pools, graphs, snapshots, history, virtual segments: as stock has them."""

import pytest

from compare import EXACT, figures
from environments import SLOW
from sizes import MIB, rounded

VIRTUAL = {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}


@pytest.mark.parametrize("scenario", ["snapshot", "history", "pool", "graph"])
def test_the_same_as_stock(run_both, scenario):
    stock, subject = run_both(f"pools:{scenario}")
    assert subject.value == stock.value


def test_a_snapshot_lists_every_block(run):
    value = run("pools:snapshot").value
    in_use = [
        size
        for segment in value["segments"]
        for size, state in segment["blocks"]
        if state == "active_allocated"
    ]
    assert sorted(in_use) == sorted(map(rounded, (900, 3 * MIB, 40 * MIB)))
    for segment in value["segments"]:
        assert sum(size for size, _ in segment["blocks"]) == segment["total_size"]


def test_streams_and_pending_uses_are_told(run_both):
    stock, subject = run_both("pools:used_by_a_stream", env=SLOW)
    value = subject.value
    assert {one["stream"] for one in value["segments"]} == {"side", "default"}
    assert [3 * MIB + 1, "active_pending_free"] in [block[1:] for block in value["blocks"]]
    assert value == stock.value


def test_a_pool_shares_nothing_and_is_given_back(run):
    first, other, again, end = run("pools:pool").value
    assert first["segment.all.current"] == 1
    assert not other["shared"]
    assert again["reused"]
    assert end["segment.all.current"] == 1
    assert end["num_device_free"] == 1


@pytest.mark.parametrize("seed", [1, 2])
def test_virtual_segments_hold_what_stocks_hold_and_reserve_no_more(run_both, seed):
    walk = {"seed": seed, "steps": 1500, "largest": 256 * MIB, "streams": 2}
    stock, subject = run_both("allocation:walk", env=VIRTUAL, **walk)
    for theirs, ours in zip(stock.value, subject.value, strict=True):
        assert figures(ours, *EXACT) == figures(theirs, *EXACT)
        assert ours["reserved_bytes.all.peak"] <= theirs["reserved_bytes.all.peak"]
    assert subject.value[-1]["reserved_bytes.all.current"] == 0


def test_virtual_segments_keep_contents_apart(run):
    env = VIRTUAL | {"CANN_SIM_MODE": "backed"}
    assert run("allocation:contents", seed=3, steps=300, env=env).value["wrong"] == 0
