"""What is written to torch_npu's logger and the device's log."""

import torch

from scenarios.common import MIB, allocate, caught
from scenarios.shared import set_faults


def failed():
    """A request that the driver serves, one that it has no memory for, one that it fails for, and a change of settings."""
    keep = allocate(3 * MIB)
    caught(allocate, 1 << 40)
    set_faults("aclrtMalloc:every=1,code=507899")
    assert caught(allocate, 300 * MIB)
    set_faults("")
    torch._C._accelerator_setAllocatorSettings("garbage_collection_threshold:0.5")
    del keep
