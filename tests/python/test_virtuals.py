"""The allocator's virtual methods for memory and streams, called from C++."""

import pytest

from compare import same_error
from environments import BACKED, SLOW
from sizes import MIB, rounded


@pytest.mark.parametrize("scenario", ["identity", "aligned", "raw", "cache_info", "cache_info_onto"])
def test_the_same_as_stock(run_both, scenario):
    stock, subject = run_both(f"virtuals:{scenario}")
    assert subject.value == stock.value


@pytest.mark.parametrize("scenario", ["recorded_streams", "works", "clean_events"])
def test_the_same_as_stock_with_pending_work(run_both, scenario):
    stock, subject = run_both(f"virtuals:{scenario}", env=SLOW)
    assert subject.value == stock.value


def test_a_block_that_is_gone_has_no_uses(run_both):
    stock, subject = run_both("uses:gone_uses")
    for one in (*stock.value, *subject.value):
        assert one["line"].endswith("No allocated block can be found")


def test_a_work_gives_a_use_back_once(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator forgets a later use, too")
    assert run("uses:used_again", env=SLOW).value is False


def test_works_of_live_blocks_are_remembered(run_both):
    stock, subject = run_both("uses:many_works", env=SLOW)
    assert subject.value is stock.value is True


def test_a_use_is_taken_back_on_the_blocks_own_stream_alone(run_both):
    stock, subject = run_both("uses:erased_elsewhere", env=SLOW)
    assert subject.value is stock.value is False


def test_aligned_blocks_are_aligned(run):
    value = run("virtuals:aligned").value
    assert all(row["aligned"] and row["inside"] for row in value["rows"])
    # The alignment is asked for on top of the size.
    assert value["rows"][1]["allocated_bytes.all.current"] == rounded(1000 + 64 * 1024)
    assert value["too large"]["types"] == ["c10::OutOfMemoryError"]


def test_uses_of_aligned_blocks_are_of_the_whole_block(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator finds no block where the data begin")
    value = run("virtuals:aligned_uses", env=SLOW).value
    assert value == {"none": True, "recorded": False, "recorded by torch": False, "taken back": True,
                     "collective": True}


def test_raw_memory_belongs_to_its_stream(run):
    value = run("virtuals:raw").value
    assert (value["other stream"], value["own stream"]) == (False, True)
    assert value["nothing"] == [0, 0]
    assert [stage["allocated_bytes.all.current"] for stage in value["stages"]] == [
        2 * rounded(30 * MIB), 0]


def test_copies_copy(run_both):
    stock, subject = run_both("virtuals:copies", env=BACKED)
    assert subject.value is stock.value is True


def test_a_copy_that_fails_is_an_error(run_both):
    stock, subject = run_both("virtuals:copied_in_vain")
    same_error(stock.value, subject.value)


@pytest.mark.parametrize("check", [0, 1])
def test_memory_that_the_driver_does_not_take_is_an_error_where_errors_are_wanted(run, subject, check):
    if subject == "stock":
        pytest.skip("the stock allocator raises in either case")
    outcome = run("virtuals:emptied_in_vain", check=check)
    assert (outcome.value["error"] is not None) == bool(check)
    assert check or "emptying the cache of device 0 failed: " in outcome.output


def test_base_allocations_are_the_drivers(run_both):
    stock, subject = run_both("virtuals:base_allocations")
    value = subject.value
    assert value["sizes"] == [20 * MIB, 20 * MIB, 2 * MIB, 42 * MIB]
    assert value["offsets"] == [0, rounded(2 * MIB), 0, 0]
    for name in ("unknown", "inside"):
        assert "invalid device pointer" in value[name]["line"]
    for name in ("offsets", "sizes", "one segment", "size not asked for", "unknown"):
        assert value[name] == stock.value[name], name


def test_works_give_back_their_own_blocks_only(run):
    value = run("virtuals:works", env=SLOW).value
    names = ("given back", "second time", "another's work", "used again")
    assert [value[name][0] for name in names] == [True, True, False, False]
    assert value["null block"]["line"] == "invalid block pointer"
    assert value["null work"]["line"] == "invalid hccl work pointer"


def test_cleaned_events_hold_nothing(run):
    value = run("virtuals:clean_events", env=SLOW).value
    assert [stage["active_bytes.all.current"] for stage in value["stages"]] == [
        rounded(30 * MIB), 0]
    assert value["reused"]


@pytest.mark.parametrize("way", ["pool id 0", "checked", "unchecked", "impl", "device", "virtual"])
def test_cached_memory_is_given_back(run_both, way):
    stock, subject = run_both("virtuals:emptied", way=way)
    value = subject.value
    if way == "virtual":
        assert "please enable expandable_segments" in value["error"]["line"]
        assert value["after"] == value["before"]
    else:
        assert value["error"] is None
        assert value["after"]["reserved_bytes.all.current"] == 20 * MIB
    assert value == stock.value


def test_calls_that_crash_stock_are_errors(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator crashes")
    value = run("virtuals:misuse").value
    assert value["no alignment"] and value["kept"]
    for name, row in value["rows"].items():
        assert row["unchanged"], name
        # Which collective used an unknown block last is unknown: nothing to erase.
        assert (row["error"] is None) == (name == "work of an unknown block"), name
    same_error(value["rows"]["cache info"]["error"], value["rows"]["cached memory"]["error"])
    assert "Invalid device argument 99" in value["rows"]["cache info"]["error"]["line"]
