"""Private pools, captures and checkpoints by their virtual methods."""

import pytest

from environments import FIXED, SLOW, SMALL, VIRTUAL
from sizes import MIB, rounded

#: Of a statistic.
COLUMNS = ("allocated", "freed", "current", "peak")


@pytest.mark.parametrize(
    "scenario", ["routes", "emptied_pool", "never_split", "checkpoint", "graph_tree"]
)
def test_the_same_as_stock(run_both, scenario):
    stock, subject = run_both(f"raw_pools:{scenario}")
    assert subject.value == stock.value


def test_captures_are_stocks(run_both):
    stock, subject = run_both("raw_pools:captures", env=SLOW)
    assert subject.value == stock.value


def test_requests_are_routed_and_counted(run):
    value = run("raw_pools:routes").value
    assert value["counts"] == [1, 2]
    assert value["live"] == [True, False, False]
    assert value["stages"][2]["reserved_bytes.all.current"] == 0


def test_a_scope_routes_requests_of_its_device_alone(run_both):
    stock, subject = run_both("raw_pools:routes_of_one_device")
    assert subject.value["pools"] == [[0, True], [1, False], [1, False]]
    assert subject.value["live"] == [True, True]
    assert subject.value == stock.value


def test_no_event_becomes_part_of_another_streams_graph(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator records one, and asks for its state in vain")
    value = run("raw_pools:captured_elsewhere", env=SLOW).value
    assert value["events"] == 0
    # The event after the end may be over at once, or only after a wait.
    assert value["reused"] in ([False, True, False], [False, False, True])


def test_threads_open_scopes_at_once(run):
    assert run("raw_pools:routes_meanwhile", rounds=300).value == 300


def test_one_pool_is_emptied(run):
    reserved = [s["reserved_bytes.all.current"] for s in run("raw_pools:emptied_pool").value]
    # A pool's own memory goes only once nobody uses the pool.
    assert reserved == [count * 32 * MIB for count in (4, 4, 4, 4, 3, 2, 1, 0)]


@pytest.mark.parametrize("use", [0, 1])
def test_overflow_serves_when_asked_to(run_both, use):
    stock, subject = run_both("raw_pools:used_on_oom", use=use, env=SMALL)
    assert (subject.value["served"] is True) == bool(use)
    assert subject.value == stock.value


def test_a_checkpoint_brings_back_what_lived(run):
    value = run("raw_pools:checkpoint").value
    early = sum(map(rounded, (700, 3 * MIB, 30 * MIB)))
    late = early + rounded(900) + rounded(4 * MIB)
    allocated = [stage[-1] if isinstance(stage, list) else stage for stage in value["stages"]]
    assert [one["allocated_bytes.all.current"] for one in allocated] == [late, 0, late, early]
    assert value["stages"][2][:2] == [0, 5]
    assert value["stages"][3][:2] == [5, 3]
    assert all(value[n] for n in ("late has early", "live", "early", "live early"))


def test_a_checkpoint_counts_what_lives_alone(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator allocates the free parts of segments too, and frees them")
    value = run("raw_pools:restored_figures", env=FIXED).value
    first, second = 3 * MIB + 1, 5 * MIB + 1
    assert value["counts"] == [1, 2]
    assert [value["stats"][f"allocation.all.{what}"] for what in COLUMNS] == [2, 1, 2, 2]
    both = rounded(first) + rounded(second)
    assert [value["stats"][f"allocated_bytes.all.{what}"] for what in COLUMNS] == [both, rounded(first), both, both]
    both = first + second
    assert [value["stats"][f"requested_bytes.all.{what}"] for what in COLUMNS] == [both, first, both, both]
    assert value["history"] == [
        ["free_requested", first], ["free_completed", first], ["alloc", first], ["alloc", second]
    ]
    assert sorted(value["blocks"]) == [
        [0, "inactive"], [first, "active_allocated"], [second, "active_allocated"]
    ]


def test_wrong_states_of_pools_have_stocks_errors(run_both):
    stock, subject = run_both("raw_pools:wrong_states")
    assert subject.value == stock.value
    assert subject.value["state of a released pool"] is None
    assert sum(row is not None for row in subject.value.values()) == len(subject.value) - 1


@pytest.mark.parametrize("scenario", ["checkpoint", "graph_tree"])
def test_checkpoints_work_in_virtual_segments(run_both, scenario):
    stock, subject = run_both(f"raw_pools:{scenario}", env=VIRTUAL)
    names = ("reserved_bytes.all.current", "segment.all.current")
    assert without(subject.value, names) == without(stock.value, names)


def without(value, names):
    """A structure without some figures: virtual segments grow in other steps."""
    if isinstance(value, dict):
        return {k: without(v, names) for k, v in value.items() if k not in names}
    if isinstance(value, list):
        return [without(one, names) for one in value]
    return value


def test_wrong_pools_are_errors_and_change_nothing(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator crashes")
    value = run("raw_pools:wrong_ids").value
    for name, row in value["rows"].items():
        assert row["unchanged"], name
        # As there, emptying a pool that holds nothing is no error.
        assert (row["error"] is None) == (name == "empty of none"), name
    for name in ("release of none", "use count of none", "live of none", "checkpoint of none"):
        assert "(77, 1)" in value["rows"][name]["error"]["line"], name
    assert "not currently recording" in value["rows"]["end without begin"]["error"]["line"]
    assert "already recording" in value["rows"]["begin twice"]["error"]["line"]
    assert "already released" in value["rows"]["release twice"]["error"]["line"]
    assert value["end"]["reserved_bytes.all.current"] == 0


def test_wrong_checkpoints_are_errors_and_change_nothing(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator crashes")
    value = run("raw_pools:wrong_checkpoints").value
    assert value["rows"]["foreign"]["error"]["line"] == "Expected PrivatePoolState"
    for name, row in value["rows"].items():
        assert row["error"] is not None and row["unchanged"], name
    assert value["end"]["reserved_bytes.all.current"] == 0


def test_the_end_of_no_capture_is_an_error(run_both):
    stock, subject = run_both("raw_pools:capture_end_alone")
    for one in (stock.value, subject.value):
        assert one["error"]["types"] == ["c10::Error"]
        assert one["unchanged"] and not one["underway"]
    assert "capture" in subject.value["error"]["line"]
