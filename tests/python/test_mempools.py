"""torch.npu.MemPool and its options; allocators of the user's own."""

import pytest

from compare import same_error
from environments import SMALL
from sizes import GIB, MIB

#: Why the device may hold memory that the allocator does not count.
OWN = "another allocator has its own memory"


@pytest.mark.parametrize("scenario", ["no_split", "uses", "emptied"])
def test_pools_are_stocks(run_both, scenario):
    stock, subject = run_both(f"mempools:{scenario}")
    assert subject.value == stock.value


def test_a_pool_is_counted_and_named(run):
    value = run("mempools:uses").value
    assert value["counts"] == [1, 2, 1]
    assert value["mine"] == [[20 * MIB, True]]


def test_no_split_gives_whole_segments(run):
    blocks = [blocks for _, blocks in run("mempools:no_split").value["segments"]]
    assert all(len(one) == 1 for one in blocks)


def test_nested_scopes(run_both):
    stock, subject = run_both("mempools:nested")
    assert subject.value["sizes"] == stock.value["sizes"] == [[42 * MIB], [32 * MIB]]
    same_error(stock.value["error"], subject.value["error"])
    assert "already recording" in subject.value["error"]["line"]


@pytest.mark.parametrize("use", [True, False])
def test_overflow_is_stocks(run_both, use):
    stock, subject = run_both("mempools:on_oom", use=use, env=SMALL)
    assert subject.value["served"] is use
    assert subject.value == stock.value


def test_out_of_memory_inside_a_pool(run_both):
    stock, subject = run_both("mempools:too_large", env=SMALL)
    same_error(stock.value["error"], subject.value["error"])
    assert subject.value["num_ooms"] == stock.value["num_ooms"] == 1


@pytest.mark.parametrize(
    "scenario", ["changed", "no_such_function", "pool_of_its_own", "current"]
)
def test_own_allocators_are_stocks(run_both, scenario):
    stock, subject = run_both(f"own_allocators:{scenario}", provokes=OWN)
    assert subject.value == stock.value


def test_an_own_allocator_serves(run):
    value = run("own_allocators:changed", provokes=OWN).value
    assert value["counts"] == [[1, 0], [1, 1]]
    assert value["backend"] == "pluggable"


def test_a_pools_own_allocator_supplies_its_segments(run):
    stages = run("own_allocators:pool_of_its_own", provokes=OWN).value["stages"]
    assert [stage[:2] for stage in stages] == [[1, 0], [1, 0], [1, 0], [1, 0], [1, 1]]


def test_a_pools_own_allocator_may_have_nothing(run_both):
    stock, subject = run_both("own_allocators:exhausted", provokes=OWN, env={"CANN_SIM_CAPACITY": str(GIB)})
    assert subject.value["error"]["types"][0] == "torch.OutOfMemoryError"
    same_error(stock.value.pop("error"), subject.value.pop("error"))
    assert subject.value == stock.value


def test_memory_of_an_own_allocator_is_shared_anew(run_both):
    stock, subject = run_both("own_allocators:shared_again", provokes=OWN)
    assert subject.value == {"same address": True, "same text": False, "counts": [2, 2]}
    assert subject.value == stock.value


def test_a_pool_keeps_its_allocator_while_another_thread_empties_the_cache(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator cannot be its own pool's")
    assert run("own_allocators:made_meanwhile", rounds=100, provokes=OWN).value == []


def test_allocators_of_pools_go_with_them(run_both):
    stock, subject = run_both("own_allocators:gone")
    # With npualloc not before the cache is emptied, or the number is taken again.
    assert subject.value[2::2] == stock.value[2::2] == [[1, 1], [2, 2]]


def test_a_pools_allocator_may_empty_the_cache_as_it_goes(run):
    run("own_allocators:busy")


def test_changing_too_late_is_refused(run_both):
    stock, subject = run_both("own_allocators:changed_late", provokes=OWN)
    same_error(stock.value["error"], subject.value["error"])
    assert "already initialized" in subject.value["error"]["line"]
    for name in ("backend", "again", "allocation.all.allocated"):
        assert subject.value[name] == stock.value[name], name
