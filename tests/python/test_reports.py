"""Files made from snapshots, and PyTorch's memory viewer."""

import pytest

from environments import SMALL
from sizes import GIB, MIB


def in_use(text):
    """The lines of a flame graph about live memory: of a free block stock shows the
    size that was requested last, npualloc none."""
    return [line for line in text.splitlines() if ";inactive;" not in line]


def test_usages_are_stocks(run_both):
    stock, subject = run_both("reports:usages")
    for name, text in subject.value["lines"].items():
        assert "allocate" in text and "active_allocated" in text, name
        assert in_use(text) == in_use(stock.value["lines"][name]), name
        assert total(text) == total(stock.value["lines"][name]), name
    for name, text in subject.value["written"].items():
        kind = "segments" if "segment" in name else "memory"
        assert text == "<svg>" + subject.value["lines"][kind], name


def total(text):
    """Bytes of all lines."""
    return sum(int(line.rsplit(" ", 1)[1]) for line in text.splitlines())


def test_a_dump_opens_in_the_viewer(run_both):
    stock, subject = run_both("reports:dump")
    assert all(all(drawn) for drawn in subject.value["drawn"].values())
    for name in ("drawn", "statistics", "trace", "files", "kept"):
        assert subject.value[name] == stock.value[name], name
    assert "dump.pickle" in subject.value["files"]


def test_a_dump_has_stocks_structure(run_both):
    stock, subject = run_both("reports:dump")
    check_structure(subject.value["structure"], stock.value["structure"])


def check_structure(ours, theirs):
    """Equal, but for what stock loses: a segment's stack when the segment's first block is cut."""
    assert ours.keys() == theirs.keys()
    assert ours["device_traces"] == theirs["device_traces"]
    empty = '"frames": ["list"], "is_expandable"'
    stack = '"frames": ["list", FRAME], "is_expandable"'.replace(
        "FRAME", r'"{\"filename\": \"str\", \"line\": \"int\", \"name\": \"str\"}"'
    )
    def without(kinds):
        return sorted({kind.replace(stack, empty) for kind in kinds})
    assert without(ours["segments"]) == without(theirs["segments"])


def test_snapshots_can_be_compared(run_both):
    stock, subject = run_both("reports:compared")
    assert "only_after" in subject.value["text"] or "after" in subject.value["text"]
    assert subject.value == stock.value


def comparable(taken):
    """Without what npualloc has otherwise: segments given back come in another order."""
    entries = [entry for entry in taken["entries"] if entry[0] != "segment_free"]
    freed = sorted(entry for entry in taken["entries"] if entry[0] == "segment_free")
    return entries, freed, taken["segments"]


@pytest.mark.parametrize("value", ["1", "2"])
def test_running_out_of_memory_writes_a_snapshot(run_both, value):
    stock, subject = run_both("reports:dump_on_oom", env=SMALL | {"OOM_SNAPSHOT_ENABLE": value})
    ours = subject.value
    assert any(name == "oom_snapshot_PID_TIME.pickle" for name in ours["files"]), ours["files"]
    assert ours["files"] == stock.value["files"]
    (taken,) = ours["taken"]
    # The snapshot shows what was there when the request failed.
    assert taken["entries"][-1] == ["oom", 2 * GIB + 512, ["run_out", "dump_on_oom"]]
    assert (len(taken["entries"]) == 1) == (value == "2")
    assert [s[1] for s in taken["segments"]] == [1024, 40 * MIB + 512], taken["segments"]
    assert comparable(taken) == comparable(stock.value["taken"][0])
    check_structure(ours["structure"][0], stock.value["structure"][0])
    for name in ("errors", "after", "history"):
        assert ours[name] == stock.value[name], name


def test_every_failure_writes_one(run_both):
    stock, subject = run_both("reports:dump_on_oom", env=SMALL | {"OOM_SNAPSHOT_ENABLE": "1"}, failures=2)
    assert subject.value["files"].count("oom_snapshot_PID_TIME.pickle") == 2
    ours, theirs = ([comparable(one) for one in value["taken"]] for value in (subject.value, stock.value))
    assert len(ours) == 2 and ours == theirs
    for name in ("files", "errors", "after"):
        assert subject.value[name] == stock.value[name], name


def test_no_snapshot_is_written_unasked(run_both):
    stock, subject = run_both("reports:dump_on_oom", env=SMALL)
    assert subject.value["taken"] == []
    for name in ("files", "errors", "after", "history"):
        assert subject.value[name] == stock.value[name], name


def test_a_directory_that_is_not_there_is_named(run_both):
    stock, subject = run_both("reports:dump_on_oom", env=SMALL | {"OOM_SNAPSHOT_ENABLE": "1"}, missing=True)
    assert "OOM_SNAPSHOT_PATH" in subject.value["errors"][0][1]
    for name in ("files", "errors", "after"):
        assert subject.value[name] == stock.value[name], name
