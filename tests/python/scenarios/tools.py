"""What CANN's memory tools are told."""

import ctypes

import torch

from scenarios.common import MIB, allocate

KINDS = ["heap", "block", "gone"]


def events(home):
    """Allocations and frees, as the stand-in for mstx saw them."""
    library = ctypes.CDLL(f"{home}/lib64/libms_tools_ext.so")
    library.test_event.restype = ctypes.c_int64
    first = allocate(3 * MIB)
    second = allocate(5 * MIB)
    side = torch.npu.Stream()
    second.record_stream(side)
    del first
    third = allocate(MIB // 2)
    del second
    del third
    torch.npu.synchronize()
    numbers = {}
    found = []
    for index in range(library.test_event_count()):
        kind, device, address, size = (library.test_event(index, field) for field in range(4))
        # Addresses differ from run to run: count them off.
        found.append([KINDS[kind], device, numbers.setdefault(address, len(numbers)), size])
    return found
