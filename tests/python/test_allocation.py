"""Sizes, reuse, splitting, placement, contents."""

import pytest

from compare import EXACT, figures
from sizes import KIB, MIB, rounded


def segment_for(size):
    """Bytes of the segment that is made for a rounded size."""
    if size <= MIB:
        return 2 * MIB
    if size < 10 * MIB:
        return 20 * MIB
    return -(-size // (2 * MIB)) * 2 * MIB


def block_for(size):
    """Bytes of the block that a rounded size gets from a segment of its own: a
    remainder of up to 1 MiB of a large segment is not worth cutting off."""
    rest = segment_for(size) - size
    return size if size <= MIB or rest > MIB else segment_for(size)


def test_each_size_takes_what_the_rules_say(run):
    for row in run("allocation:sizes").value:
        size, block = row["size"], rounded(row["size"])
        assert row["aligned"], size
        assert row["requested"] == size
        assert row["allocated"] == block_for(block), size
        assert row["reserved"] == segment_for(block), size
        assert (row["small"], row["large"]) == ((1, 0) if block <= MIB else (0, 1)), size


def test_zero_bytes_take_nothing(run):
    value = run("allocation:nothing").value
    assert value["address"] == 0
    assert all(number == 0 for key, number in value["npu"].items() if "bytes" in key)


def test_a_freed_block_is_reused(run):
    value = run("allocation:reuse").value
    assert value["same"]
    assert value["reserved_bytes.all.current"] == value["reserved"] == 20 * MIB
    assert value["num_device_alloc"] == 1
    assert value["allocation.all.allocated"] == 2


def test_the_smallest_block_that_fits_is_taken(run):
    # 32, 48 and 64 MiB were the blocks at indexes 1, 2 and 0.
    assert run("allocation:best_fit").value["order"] == [1, 2, 0]


@pytest.mark.parametrize(
    "scenario",
    ["sizes", "nothing", "reuse", "split_and_merge", "best_fit"],
)
def test_the_same_as_stock(run_both, scenario):
    stock, subject = run_both(f"allocation:{scenario}")
    assert subject.value == stock.value


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("largest", [MIB, 256 * MIB])
def test_random_walks_use_what_stock_uses_and_reserve_no_more(run_both, seed, largest, streams):
    walk = {"seed": seed, "steps": 1500, "largest": largest, "streams": streams}
    stock, subject = run_both("allocation:walk", **walk)
    assert len(stock.value) == len(subject.value) == 32
    for theirs, ours in zip(stock.value, subject.value):
        assert figures(ours, *EXACT) == figures(theirs, *EXACT)
        assert ours["reserved_bytes.all.peak"] <= theirs["reserved_bytes.all.peak"]
    assert subject.value[-1]["reserved_bytes.all.current"] == 0


@pytest.mark.parametrize("seed", [1, 2])
def test_live_tensors_keep_their_contents(run, seed):
    value = run("allocation:contents", seed=seed, steps=400, env={"CANN_SIM_MODE": "backed"}).value
    assert value == {"wrong": 0, "checked": 400}


def test_rounding_is_the_one_of_this_file():
    # The rule itself, at its edges: 32 bytes of padding, then multiples of 512.
    assert [rounded(n) for n in (1, 480, 481, 512, 4 * KIB)] == [512, 512, 1024, 1024, 4608]
