"""PYTORCH_NO_NPU_MEMORY_CACHING."""

import pytest

from sizes import MIB

UNCACHED = {"PYTORCH_NO_NPU_MEMORY_CACHING": "1"}


def test_memory_is_not_cached(run_both):
    stock, subject = run_both("uncached:tensors", env=UNCACHED)
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
    for outcome in run_both("uncached:emptied", env=UNCACHED):
        assert outcome.value == [True, False]


def test_kernels_have_room_behind_a_tensor(run_both):
    stock, subject = run_both("uncached:padded", env=UNCACHED)
    # It does not fit on the tensor's own pages of 2 MiB.
    assert subject.value == stock.value == [6 * MIB, 4 * MIB]


def test_aligned_blocks_are_the_drivers_own(run_both):
    stock, subject = run_both("uncached:aligned", env=UNCACHED)
    for made, gone in zip(subject.value[::2], subject.value[1::2], strict=True):
        aligned, device, raw, taken, after = made
        assert (aligned, device, raw) == (True, 0, 1) and taken > 0
        assert gone[:2] == [None, 0] and gone[2] == after
        assert after["reserved_bytes.all.current"] == 0
    assert subject.value == stock.value


def test_the_raw_deleter_is_that_of_new_memory(run_both):
    stock, subject = run_both("uncached:raw_deleter", env=UNCACHED)
    assert subject.value == stock.value == [1, True, 0]


def test_the_raw_deleter_is_that_of_a_captures_memory(run_both):
    stock, subject = run_both("uncached:raw_deleter_captured", env=UNCACHED)
    assert subject.value == stock.value == 1


def test_graphs_use_cached_memory(run_both):
    stock, subject = run_both("uncached:captured", env=UNCACHED)
    assert subject.value[0]["npu"]["reserved_bytes.all.current"] > 0
    assert subject.value[2]["reserved_bytes.all.current"] == 0
    assert subject.value == stock.value


def test_a_released_pool_keeps_nothing(run_both):
    stock, subject = run_both("uncached:released_pools", env=UNCACHED)
    errors = [row[0] for row in subject.value if isinstance(row, list)]
    assert errors == [None, None]
    reserved = [(row[1] if isinstance(row, list) else row)["reserved_bytes.all.current"] for row in subject.value]
    # In the middle of a capture nothing can go back; its end sees to it.
    assert reserved == [32 * MIB, 0, 32 * MIB, 32 * MIB, 0]
    assert subject.value == stock.value


@pytest.mark.parametrize("text", ["0", ""])
def test_zero_means_cached(run_both, text):
    env = {"PYTORCH_NO_NPU_MEMORY_CACHING": text}
    stock, subject = run_both("uncached:tensors", env=env)
    assert subject.value["npu"]["reserved_bytes.all.peak"] > 0
    assert subject.value == stock.value


def test_memory_alive_at_the_end_of_a_process_is_no_failure(processes, subject):
    """The stock allocator frees it on a runtime that is gone, and the process aborts."""
    if subject == "stock":
        pytest.skip("with the stock allocator such a process aborts")
    ended = processes.leave("lifecycle:alive", subject, env=UNCACHED)
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
