"""torch.accelerator's functions for memory."""

from sizes import GIB, MIB, rounded


def test_every_function_is_stocks(run_both):
    stock, subject = run_both("interfaces:accelerator")
    value = subject.value
    assert value["memory_allocated"] == value["memory_allocated 0"] == rounded(3 * MIB)
    assert value["max_memory_reserved"] == 20 * MIB + 42 * MIB
    assert value["emptied"] == 20 * MIB
    assert value["free"] == [64 * GIB - 20 * MIB, 64 * GIB]
    assert value["reset"]["allocated_bytes.all.peak"] == rounded(3 * MIB)
    assert value["reset"]["allocation.all.allocated"] == 0
    assert value == stock.value


def test_counters_of_the_documentation_are_there(run):
    stats = run("interfaces:accelerator").value["stats"]
    for name in ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc",
                 "num_device_free", "requested_bytes.all.current"):
        assert name in stats
    assert stats["num_device_alloc"] == 2
