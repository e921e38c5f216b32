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


def test_zero_means_cached(run_both):
    env = {"PYTORCH_NO_NPU_MEMORY_CACHING": "0"}
    stock, subject = run_both("interfaces:uncached", env=env)
    assert subject.value["npu"]["reserved_bytes.all.peak"] > 0
    assert subject.value == stock.value


@pytest.mark.parametrize("value", ["2"])
def test_bad_values_are_refused(run_both, value):
    env = {"PYTORCH_NO_NPU_MEMORY_CACHING": value}
    stock, subject = run_both("interfaces:used", fresh=True, env=env)
    for outcome in (stock, subject):
        assert outcome.error is not None
    assert "should be 0 or 1" in stock.error.message
    # The plug-in says so when it is loaded, torch with the reason as the cause.
    assert "should be 0 or 1" in subject.error.message + subject.error.trace
