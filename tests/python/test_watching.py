"""Observers, trackers, callbacks, history in every mode."""

import pytest

from compare import same_error
from environments import FIXED, SMALL, VIRTUAL
from sizes import GIB, MIB, rounded


@pytest.mark.parametrize("part", [1.0, 0.5])
def test_observers_are_told_of_out_of_memory(run_both, part):
    stock, subject = run_both("watching:told_of_oom", part=part, env=SMALL)
    value = subject.value
    ((device, size, total, free),) = value["python"]
    assert (device, size, total) == (0, 2 * GIB + 2 * MIB, part * GIB)
    assert value["probe"] == [["oom", "0", str(size), str(total), str(free)]]
    # Below stock's line npualloc explains.
    first, *explanation = value["error"]["message"].splitlines()
    assert explanation
    value["error"]["message"] = first
    assert value == stock.value


def test_an_observer_may_allocate(run_both):
    stock, subject = run_both("watching:observer_allocates", env=SMALL)
    assert subject.value["log"] == stock.value["log"] == [["allocated", "1"]]
    assert subject.value["error"]["types"] == stock.value["error"]["types"]
    assert subject.value["num_ooms"] == 1


def test_rejections_are_told_and_counted(run_both):
    stock, subject = run_both("watching:told_of_rejection", env=SMALL)
    value = subject.value
    assert value["num_oom_rejections"] == 2
    assert value["num_ooms"] == value["num_alloc_retries"] == 0
    assert len(value["log"]) == 4
    assert "Requested size: 600.00 MiB" in value["errors"][0]["line"]
    assert value == stock.value


def test_an_observer_that_fails_keeps_none_from_the_others(run, subject):
    if subject == "stock":
        pytest.skip("the observer's exception ends the process")
    value = run("watching:told_besides", env=SMALL).value
    assert value == {"error": "torch.OutOfMemoryError", "log": ["failing", "rejected"]}


def test_callbacks_give_memory_back(run_both):
    stock, subject = run_both("watching:callback", env=SMALL)
    assert subject.value["served"]
    assert ["callback", "1"] in subject.value["log"]
    assert subject.value == stock.value


def test_workspaces_are_given_back_by_a_retry(run_both):
    stock, subject = run_both("watching:workspaces", env=SMALL)
    assert subject.value["end"] == GIB
    assert subject.value == stock.value


def test_what_workspaces_had_serves_a_request(run_both):
    # With this queue they are an allocator's of their own.
    stock, subject = run_both("watching:large_workspaces", env=SMALL | {"TASK_QUEUE_ENABLE": "2"})
    assert subject.value["rows"] == [[True, 800 * MIB]] * 2
    assert subject.value["num_ooms"] == 0
    assert subject.value == stock.value


def test_trackers_are_told_everything_in_order(run_both):
    stock, subject = run_both("watching:tracked")
    assert len(subject.value["all"]) > len(subject.value["without"]) > 5
    assert subject.value == stock.value


def test_trackers_are_told_by_the_end_of_each_call(run_both):
    stock, subject = run_both("watching:told_at_once", env=SMALL)
    theirs, ours = (dict(outcome.value) for outcome in (stock, subject))
    actions = {name: [line[0] for line in lines] for name, lines in ours.items()}
    # Stock also tells how it splits the pool's segment.
    assert actions.pop("restored")[:1] == ["0"]
    assert actions == {
        "allocate": ["3", "0"], "free": ["1", "2"], "raw": ["3", "0"], "raw free": ["1", "2"],
        "snapshot": ["7", "7"], "cached memory": ["4", "4"], "in a pool": ["3", "0"],
        "free in a pool": ["1", "2"], "too much": ["8"], "emptied": [],
    }
    for value in (ours, theirs):
        # Stock names device 0 for every device.
        del value["snapshot"], value["restored"]
    assert ours == theirs


def test_a_tracker_that_fails_hides_no_failure(run, subject):
    if subject == "stock":
        pytest.skip("the tracker's exception takes the failure's place")
    value = run("watching:failing_tracker", env=SMALL).value
    assert value["error"]["types"][0] == "torch.OutOfMemoryError"
    assert value["log"] == [["failing"]] and value["then"] == 3 * MIB


def test_each_tracker_is_told(run):
    log = run("watching:tracked_twice", env=SMALL).value
    assert ["trace", "8"] in log and log.count(["failing"]) == 1


def test_a_tracker_may_come_before_the_device_is_used(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator forgets it")
    value = run("watching:tracked_early").value
    assert not value["before"]
    # The segment comes and goes around its block, which is freed and then free.
    assert [line[1] for line in value["log"]] == ["3", "0", "1", "2", "4"]


#: Mode, contexts, stacks: every combination that means something of its own.
MODES = [
    (enabled, context, stacks)
    for enabled in ("all", "state")
    for context in (None, "state", "alloc", "all")
    for stacks in ("python", "all")
]


@pytest.mark.parametrize("enabled, context, stacks", [*MODES, (None, "all", "all")])
def test_history_is_stocks(run_both, enabled, context, stacks):
    stock, subject = run_both(
        "watching:recorded", enabled=enabled, context=context, stacks=stacks
    )
    assert subject.value == stock.value


def test_history_has_the_stacks_that_were_asked_for(run):
    def recorded(enabled, context, stacks):
        return run("watching:recorded", enabled=enabled, context=context, stacks=stacks).value

    def stacks_of(value):
        return {action: frames for action, _, frames, _, _ in value["entries"]}

    everything = stacks_of(recorded("all", "all", "python"))
    assert everything["alloc"][:1] == ["make"]
    assert everything["free_requested"][:1] == ["let_go"]
    # Without a stack of its own a free shows where the block came from.
    assert stacks_of(recorded("all", "alloc", "python"))["free_requested"][:1] == ["make"]
    assert set(map(tuple, stacks_of(recorded("all", "state", "python")).values())) == {()}
    for block in recorded("state", "state", "python")["blocks"]:
        assert (block[2][:1] == ["make"]) == (block[1] == "active_allocated")
    # Frames of C++ have no file ending in .py.
    assert recorded("all", "all", "all")["blocks"][0][3] == [False, True]
    assert recorded(None, "all", "all")["entries"] == []
    assert recorded("all", None, "all")["blocks"][0][2] == []


def test_segments_have_the_stack_that_obtained_them(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator loses it when the segment's first block is cut")
    assert run("watching:segments_obtained").value["found"] == [["make"]]


@pytest.mark.parametrize("context", ["all", "alloc", "state", None])
@pytest.mark.parametrize("env", [FIXED, VIRTUAL], ids=["fixed", "virtual"])
def test_what_is_given_back_later_has_the_stack_of_that_call(run_both, env, context):
    stock, subject = run_both("watching:given_back", env=env, context=context)
    back = "segment_unmap" if env is VIRTUAL else "segment_free"

    def entries(value):
        """Pages have sizes of their own. Without the call's stack (level `alloc`) npualloc has that of where the segment
        was obtained; stock loses it when the segment's first block is cut."""
        rows = []
        for kind, size, own in value["entries"]:
            size = 0 if kind in ("segment_map", "segment_unmap") else size
            rows.append((kind, size, [] if kind == back and context == "alloc" else own))
        return rows

    assert entries(subject.value) == entries(stock.value)
    stacks = [(kind, *own) for kind, _, own in subject.value["entries"]]
    if context == "all":
        assert {("free_requested", "given_back"), ("free_completed", "come_back", "given_back"),
                ("free_completed", "empty", "given_back"), (back, "empty", "given_back")} <= set(stacks)
    elif context == "alloc":
        assert stacks.count((back, "use", "given_back")) == 2


def test_history_levels(run_both):
    stock, subject = run_both("watching:history_levels")
    rows, theirs = subject.value["rows"], stock.value["rows"]
    assert [row[:2] for row in rows] == [row[:2] for row in theirs]
    for row, other in zip(rows[::3], theirs[::3], strict=True):
        assert row == other
    # Stock loses a segment's stack when the segment's first block is cut.
    for row, other in zip(rows, theirs, strict=True):
        if len(row) == 4:
            assert row[2] >= other[2] and row[:2] + row[3:] == other[:2] + other[3:]
    assert subject.value["enabled"] == stock.value["enabled"] == 0
    assert subject.value["no recorder"]["types"] == stock.value["no recorder"]["types"]


def test_bad_modes_are_refused(run_both):
    stock, subject = run_both("watching:bad_modes")
    for name, error in subject.value.items():
        same_error(stock.value[name], error)


def test_the_size_of_an_entry_is_the_requests(run):
    value = run("watching:recorded", enabled="all", context="all", stacks="python").value
    sizes = {action: size for action, size, *_ in value["entries"]}
    assert sizes["alloc"] == 3 * MIB
    assert sizes["segment_alloc"] == 20 * MIB
    assert value["blocks"][0][0] == rounded(3 * MIB)
