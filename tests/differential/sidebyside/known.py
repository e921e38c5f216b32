"""What may differ between the allocators; README.md gives the reason for each."""

#: Statistics (first word of the name) that are reported, not compared.
MAY_DIFFER = (
    "reserved_bytes", "segment", "inactive_split", "inactive_split_bytes", "oversize_segments",
    "oversize_allocations",
    "num_device_alloc", "num_device_free", "num_sync_all_streams", "max_split_size",
    "waits", "stream_waits",
)
#: Rows of memory_summary of which the same holds.
ROWS_MAY_DIFFER = ("Non-releasable",)
#: Statistics that follow from which free block serves a request, and so may
#: differ once a retry has returned different segments to the driver.
AFTER_RETRY = ("allocated_bytes", "active_bytes", "num_alloc_retries")
#: Statistics of which at most the present value is compared after a checkpoint was set.
AFTER_RESTORE = ("allocation", "active", "allocated_bytes", "active_bytes", "requested_bytes")


def group(name):
    return name.split(".")[0]
