"""More than one device."""

import ctypes
import threading

import torch

from scenarios.common import MIB, allocate, both_stats, caught_unchanged, stats
from scenarios.probe import Probe


def apart():
    """What is done on one device shows on that device alone."""
    torch.npu.init()
    empty = [stats(0), stats(1)]
    first = allocate(5 * MIB, "npu:0")
    one = [both_stats(0), both_stats(1)]
    second = allocate(70 * MIB, "npu:1")
    both = [both_stats(0), both_stats(1)]
    del first
    torch.npu.reset_peak_memory_stats(0)
    freed = [both_stats(0), both_stats(1)]
    devices = [str(second.device), torch.npu.current_device()]
    return {"stages": [empty, one, both, freed], "devices": devices}


def current():
    """Allocations follow the current device."""
    with torch.npu.device(1):
        tensor = allocate(5 * MIB)
        raw = torch.npu.caching_allocator_alloc(MIB)
    device = str(tensor.device)
    stages = [both_stats(0), both_stats(1)]
    torch.npu.caching_allocator_delete(raw)
    stages.append(both_stats(1))
    return {"device": device, "stages": stages}


def freed_elsewhere():
    """Memory goes back to its own device, whichever is current."""
    tensor = allocate(5 * MIB, "npu:1")
    with torch.npu.device(0):
        del tensor
        return [both_stats(0), both_stats(1)]


def emptied():
    """empty_cache covers every device."""
    for device in ("npu:0", "npu:1"):
        allocate(30 * MIB, device)
    torch.npu.empty_cache()
    return [both_stats(0), both_stats(1)]


def limited():
    """A fraction holds for its own device."""
    torch.npu.set_per_process_memory_fraction(0.01, 1)
    size = 1000 * MIB
    return {
        "first": allocate(size, "npu:0").nbytes,
        "second": caught_unchanged(allocate, size, "npu:1"),
        "fractions": [
            torch.npu.memory.get_per_process_memory_fraction(0),
            torch.npu.memory.get_per_process_memory_fraction(1),
        ],
    }


def wrong_index():
    """A device that is not there, in every call that takes one."""
    allocate(5 * MIB)
    from torch_npu import _C as low_level

    calls = {
        "tensor": (allocate, 1000, "npu:99"),
        "raw": (torch.npu.caching_allocator_alloc, 1000, 99),
        "stats": (torch.npu.memory_stats, 99),
        "accelerator stats": (torch.accelerator.memory_stats, 99),
        "reset peak": (torch.npu.reset_peak_memory_stats, 99),
        "reset accumulated": (torch.npu.reset_accumulated_memory_stats, 99),
        "fraction": (torch.npu.set_per_process_memory_fraction, 0.5, 99),
        "allocator stats": (low_level._npu_memoryStats, 99),
        "allocator stats, negative": (low_level._npu_memoryStats, -1),
        "allocator reset peak": (low_level._npu_resetPeakMemoryStats, 99),
        "allocator reset accumulated": (low_level._npu_resetAccumulatedMemoryStats, 99),
        "mem_get_info": (torch.npu.mem_get_info, 99),
    }
    return {name: caught_unchanged(*call) for name, call in calls.items()}


def places():
    """The thread's device as the runtime knows it, and as torch_npu does."""
    device = ctypes.c_int32(-1)
    assert ctypes.CDLL("libascendcl.so").aclrtGetDevice(ctypes.byref(device)) == 0
    return [device.value, torch.npu.current_device()]


def device_stays():
    """Another device's memory is freed, given back and obtained; where the thread is after each step."""
    torch.npu.set_device(1)
    tensor = allocate(30 * MIB)
    torch.npu.set_device(0)
    rows = [places()]
    del tensor
    rows.append(places())
    torch.npu.empty_cache()
    rows.append(places())
    return {"places": rows, "here": str(allocate(1000).device), "reserved": torch.npu.memory_reserved(1)}


def context_stays():
    """A thread in a context of its own frees what a stream of another device uses: whether it is in its context then."""
    side = torch.npu.Stream(device=1)
    tensors = []
    for _ in range(40):
        tensors.append(allocate(30 * MIB, "npu:1"))
        with torch.npu.stream(side):
            tensors[-1].fill_(1)
        tensors[-1].record_stream(side)
    return in_own_context(tensors.clear)


def in_own_context(call):
    """Whether a thread in a context of its own is still in it after a call."""
    runtime = ctypes.CDLL("libascendcl.so")
    found = []

    def work():
        own, current = ctypes.c_void_p(), ctypes.c_void_p()
        assert runtime.aclrtCreateContext(ctypes.byref(own), 0) == 0
        call()
        assert runtime.aclrtGetCurrentContext(ctypes.byref(current)) == 0
        found.append(current.value == own.value)
        assert runtime.aclrtSetDevice(0) == 0
        assert runtime.aclrtDestroyContext(own) == 0

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found


def device_stays_after_use():
    """The memory of another device is freed while a stream of that device uses it; where the thread is then."""
    side = torch.npu.Stream(device=1)
    rows = []
    for _ in range(2):
        tensor = allocate(30 * MIB, "npu:1")
        with torch.npu.stream(side):
            tensor.fill_(1)
        tensor.record_stream(side)
        del tensor
        rows.append([places(), str(allocate(1000).device)])
    torch.npu.synchronize(1)
    allocate(30 * MIB, "npu:1")
    rows.append([places(), str(allocate(1000).device)])
    return rows


def context_stays_where_the_cache_is_emptied():
    """A thread that has never asked for memory empties the cache in a context of its own: whether it is in its context
    then, and what is left."""
    probe = Probe()
    allocate(30 * MIB)
    found = in_own_context(lambda: probe.empty_cache(1))
    return [*found, torch.npu.memory_reserved()]
