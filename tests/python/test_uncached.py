"""PYTORCH_NO_NPU_MEMORY_CACHING."""

import pytest

from sizes import MIB


def test_memory_is_not_cached(run_both):
    env = {"PYTORCH_NO_NPU_MEMORY_CACHING": "1"}
    stock, subject = run_both("interfaces:uncached", env=env)
    value = subject.value
    assert value["stages"][0] >= 3 * MIB
    assert value["stages"][2:] == [0, 0]
    assert value["npu"]["reserved_bytes.all.peak"] == 0
    for one in (value, stock.value):
        for source in ("npu", "accelerator"):
            # The allocator's own affair, see tests/differential.
            one[source].pop("num_sync_all_streams")
    assert value == stock.value


def test_empty_cache_waits_for_the_device(run_both):
    for outcome in run_both("interfaces:uncached_and_emptied", env={"PYTORCH_NO_NPU_MEMORY_CACHING": "1"}):
        assert outcome.value == [True, False]


def test_zero_means_cached(run_both):
    env = {"PYTORCH_NO_NPU_MEMORY_CACHING": "0"}
    stock, subject = run_both("interfaces:uncached", env=env)
    assert subject.value["npu"]["reserved_bytes.all.peak"] > 0
    assert subject.value == stock.value


def test_memory_alive_at_the_end_of_a_process_is_no_failure(processes, subject):
    """The stock allocator frees it on a runtime that is gone, and the process aborts."""
    if subject == "stock":
        pytest.skip("with the stock allocator such a process aborts")
    ended = processes.leave("lifecycle:alive", subject, env={"PYTORCH_NO_NPU_MEMORY_CACHING": "1"})
    assert ended.status == 0, ended.output
    assert "error code" not in ended.output


@pytest.mark.parametrize("value", ["2", "-1", "foo", "1x"])
def test_bad_values_are_refused(processes, subject, value):
    """The stock allocator takes every value but 0 for 1."""
    env = {"PYTORCH_NO_NPU_MEMORY_CACHING": value}
    if subject == "stock":
        pytest.skip("the stock allocator takes every value but 0 for 1")
    outcome = processes.run("interfaces:used", subject, fresh=True, env=env)
    assert outcome.error is not None
    # The plug-in says so when it is loaded, torch with the reason as the cause.
    assert "should be 0 or 1" in outcome.error.message + outcome.error.trace
