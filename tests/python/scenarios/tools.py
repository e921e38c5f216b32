"""What CANN's memory tools are told."""

import ctypes

import torch

from scenarios.common import MIB, allocate
from scenarios.probe import Probe
from scenarios.raw_pools import MINE

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
    allocate(7 * MIB, "npu:1")
    numbers = {}
    found = []
    for index in range(library.test_event_count()):
        kind, device, address, size = (library.test_event(index, field) for field in range(4))
        # Addresses differ from run to run: count them off.
        found.append([KINDS[kind], device, numbers.setdefault(address, len(numbers)), size])
    return found


def counted(library):
    """How often memory was asked for by way of a preloaded library: fixed segments, physical pages."""
    library = ctypes.CDLL(library)
    keep = [allocate(40 * MIB), allocate(700)]
    return [library.test_fixed_count(), library.test_physical_count(), len(keep)]


def restored(home):
    """Blocks registered once more than they were unregistered, after a pool went back to a checkpoint: whether
    they are those in use."""
    library = ctypes.CDLL(f"{home}/lib64/libms_tools_ext.so")
    library.test_event.restype = ctypes.c_int64
    probe = Probe()
    probe.pool_begin(0, *MINE, 0)
    first = probe.allocate(3 * MIB)
    state = probe.checkpoint(0, *MINE)
    where = probe.data(first)
    probe.free(first)
    second = probe.allocate(5 * MIB)
    probe.pool_end(0, *MINE)
    seen = [second != 0]
    _, made = probe.restore(0, state)
    live = {}
    for index in range(library.test_event_count()):
        kind, _, address, _ = (library.test_event(index, field) for field in range(4))
        live[address] = live.get(address, 0) + {"heap": 0, "block": 1, "gone": -1}[KINDS[kind]]
    seen.append([probe.data(block) for block in made] == [where])
    seen.append({address: count for address, count in live.items() if count} == {where: 1})
    return seen
