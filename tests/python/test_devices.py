"""Several devices, and devices that are not there."""

import pytest

from compare import same_error
from environments import SLOW, VIRTUAL
from sizes import MIB, rounded


def test_devices_are_apart(run):
    value = run("devices:apart").value
    empty, one, both, freed = value["stages"]
    key = "allocated_bytes.all.current"
    assert [stats[key] for stats in empty] == [0, 0]
    assert [stats["npu"][key] for stats in one] == [rounded(5 * MIB), 0]
    assert [stats["npu"][key] for stats in both] == [rounded(5 * MIB), rounded(70 * MIB)]
    assert [stats["npu"]["allocated_bytes.all.peak"] for stats in freed] == [0, rounded(70 * MIB)]
    assert value["devices"] == ["npu:1", 0]


def test_allocations_follow_the_current_device(run):
    value = run("devices:current").value
    first, second, deleted = (stats["npu"] for stats in value["stages"])
    assert value["device"] == "npu:1"
    assert first["allocated_bytes.all.current"] == 0
    in_use = rounded(5 * MIB) + rounded(MIB)
    assert second["allocated_bytes.all.current"] == in_use
    assert deleted["allocated_bytes.all.current"] == rounded(5 * MIB)


@pytest.mark.parametrize("scenario", ["apart", "current", "freed_elsewhere", "emptied"])
def test_the_same_as_stock(run_both, scenario):
    stock, subject = run_both(f"devices:{scenario}")
    assert subject.value == stock.value


def test_the_device_stays_when_anothers_memory_goes(run_both):
    stock, subject = run_both("devices:device_stays")
    assert subject.value["places"] == [[0, 0]] * 3
    assert (subject.value["here"], subject.value["reserved"]) == ("npu:0", 0)
    assert subject.value == stock.value


def test_the_device_stays_when_anothers_stream_uses_what_is_freed(run_both):
    stock, subject = run_both("devices:device_stays_after_use", env=SLOW)
    assert subject.value == stock.value == [[[0, 0], "npu:0"]] * 3


def test_a_thread_stays_in_its_own_context(run):
    assert run("devices:context_stays", env=SLOW | VIRTUAL).value == [True]


def test_a_thread_stays_in_its_own_context_where_it_empties_the_cache(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator leaves it")
    assert run("devices:context_stays_where_the_cache_is_emptied").value == [True, 0]


def test_a_fraction_holds_for_its_device(run_both):
    stock, subject = run_both("devices:limited")
    value = subject.value
    assert value["first"] == 1000 * MIB
    assert value["fractions"] == pytest.approx([1.0, 0.01])
    assert value["second"]["unchanged"]
    same_error(stock.value["second"]["error"], value["second"]["error"])
    assert "(NPU 1;" in value["second"]["error"]["line"]


def test_a_wrong_device_is_refused_and_changes_nothing(run_both):
    stock, subject = run_both("devices:wrong_index")
    for name, ours in subject.value.items():
        theirs = stock.value[name]
        assert ours["unchanged"], name
        if theirs["error"] is None:
            assert ours["error"] is None, name
        else:
            same_error(theirs["error"], ours["error"])
    refused = [name for name, row in subject.value.items() if row["error"] is not None]
    for name in ("tensor", "raw", "allocator stats", "allocator reset peak"):
        assert name in refused
