"""What is written to torch_npu's logger and the device's log."""

import torch

from scenarios.common import MIB, allocate, caught


def out_of_memory():
    """A request that the driver serves, one that it doesn't, and a change of settings."""
    keep = allocate(3 * MIB)
    caught(allocate, 1 << 40)
    torch._C._accelerator_setAllocatorSettings("garbage_collection_threshold:0.5")
    del keep
