"""Operators that fail in torch_npu's task queue, which drops everything afterwards, events too."""

import pytest

from environments import SLOW


@pytest.mark.parametrize("queue", ["1", "2"])
def test_a_program_that_was_told_goes_on_to_its_end(run_both, queue):
    stock, subject = run_both("operators:told", fresh=True, env={"TASK_QUEUE_ENABLE": queue})
    for one in (stock.value, subject.value):
        assert "The Inner error is reported as above" in one["error"]["line"]
        assert one["emptied"] is None


def test_a_failure_that_a_free_meets_is_told_at_the_next_request(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator ends the process")
    first, second = run("operators:met_by_a_free", fresh=True).value
    assert "The Inner error is reported as above" in first["line"]
    assert second is None


def test_a_failure_that_a_free_meets_is_told_when_the_cache_is_emptied(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator ends the process")
    first, second = run("operators:met_by_a_free_then_emptied", fresh=True).value
    assert "The Inner error is reported as above" in first["line"]
    assert second is None


def test_a_failure_that_emptying_meets_unchecked_is_told_at_the_next_request(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator ends the process")
    emptied, first, second = run("operators:met_by_emptying", checked=0, fresh=True, env=SLOW).value
    assert emptied is None
    assert first is not None and "The Inner error is reported as above" in first["line"]
    assert second is None


def test_a_failure_that_emptying_tells_is_told_once(run_both):
    for outcome in run_both("operators:met_by_emptying", checked=1, fresh=True, env=SLOW):
        emptied, first, second = outcome.value
        assert "The Inner error is reported as above" in emptied["line"]
        assert (first, second) == (None, None)


def test_a_drivers_failure_that_a_free_meets_is_not_told_later(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator ends the process")
    assert run("operators:met_by_a_failing_driver", env={"TASK_QUEUE_ENABLE": "0"}).value == [None, None]


def test_the_environment_counts_until_the_first_use(run_both):
    stock, subject = run_both("operators:uncached_late", fresh=True)
    assert subject.value == stock.value
    assert subject.value["reserved"] == 0
