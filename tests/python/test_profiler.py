"""Memory records of torch_npu's profiler."""

import pytest

from environments import SLOW
from sizes import MIB, rounded


def test_memory_is_recorded_as_stock_does(run_both):
    stock, subject = run_both("profiler:memory")
    kinds = [entry["kind"] for entry in subject.value["sessions"][0]]
    assert kinds == ["malloc", "malloc", "block_free", "free", "malloc"]
    assert subject.value["in_order"]
    assert subject.value == stock.value


def test_a_pool_that_goes_back_is_recorded(run_both):
    for outcome in run_both("profiler:restored"):
        assert outcome.value["counts"] == [[0, 0], [0, 0]]
        assert not any(outcome.value["others"])
        assert all(outcome.value["totals"].values())


@pytest.mark.parametrize("device", [0, 1])
def test_a_use_that_emptying_the_cache_ends_is_recorded_once(run_both, device):
    stock, subject = run_both("profiler:given_back", env=SLOW, device=device)
    assert subject.value == stock.value
    assert min(active for _, _, active, _ in subject.value) >= 0


def test_nothing_is_recorded_unasked(run_both):
    stock, subject = run_both("profiler:without_memory")
    assert subject.value == stock.value == []


def test_nothing_is_recorded_while_the_profiler_warms_up(run_both):
    stock, subject = run_both("profiler:warmed_up")
    assert subject.value == stock.value == [rounded(5 * MIB)]


def test_records_name_their_device_thread_and_time(run_both):
    stock, subject = run_both("profiler:elsewhere", env=SLOW)
    assert {entry["device"] for entry in subject.value["records"]} == {0, 1}
    assert subject.value["by the thread"] == [rounded(7 * MIB)]
    assert subject.value["meanwhile"]
    assert subject.value == stock.value
