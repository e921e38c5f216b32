"""An operator that fails where nobody sees it: in torch_npu's task queue."""

import ctypes
import os
import time

import torch

from scenarios.common import MIB, allocate, caught, stats
from scenarios.probe import Probe, refused


def _one_fails():
    """A block that another stream used, and an operator behind it whose launch fails. Enough memory is left."""
    torch.npu.set_device(0)
    side = torch.npu.Stream()
    data = torch.zeros(MIB, device="npu")
    used = torch.zeros(3 * MIB, device="npu")
    used.record_stream(side)
    torch.npu.synchronize()
    assert ctypes.CDLL("libascendcl.so").cannSimSetFaults(b"launch:nth=1,code=507899") == 0
    data.add_(1)
    # The queue's thread has come to it by then.
    time.sleep(0.5)
    return used


def told():
    """The program is told, frees the block and empties the cache: what it was told, and whether that is done."""
    used = _one_fails()
    error = caught(torch.npu.synchronize)
    del used
    return {"error": error, "emptied": caught(torch.npu.empty_cache), "left": stats()["active_bytes.all.current"]}


def met_by_a_free():
    """The block's free is the first to meet the failure. What the next two requests say."""
    used = _one_fails()
    del used
    return [caught(allocate, 5 * MIB), caught(allocate, 5 * MIB)]


def met_by_a_free_then_emptied():
    """The block's free is the first to meet the failure. What emptying the cache says then, twice."""
    used = _one_fails()
    del used
    return [caught(torch.npu.empty_cache), caught(torch.npu.empty_cache)]


def uncached_late():
    """The variable is set after everything was imported, but before the first use."""
    os.environ["PYTORCH_NO_NPU_MEMORY_CACHING"] = "1"
    data = allocate(MIB)
    return {"bytes": data.nbytes, "reserved": torch.npu.memory_reserved()}


def met_by_emptying(checked):
    """Emptying the cache, which waits for an event, is the first to meet the failure. What it and the next two requests
    say."""
    torch.npu.set_device(0)
    side = torch.npu.Stream()
    data = torch.zeros(MIB, device="npu")
    used = allocate(3 * MIB)
    with torch.npu.stream(side):
        used.fill_(1)
    used.record_stream(side)
    del used
    torch.npu.current_stream().query()
    assert ctypes.CDLL("libascendcl.so").cannSimSetFaults(b"launch:nth=1,code=507899") == 0
    data.add_(1)
    # The queue's thread has come to it by then.
    time.sleep(0.5)
    return [refused(Probe().empty_cache, checked), caught(allocate, 5 * MIB), caught(allocate, 5 * MIB)]


def met_by_a_failing_driver():
    """The driver fails where a free records an event. What the next requests say."""
    side = torch.npu.Stream()
    used = allocate(3 * MIB)
    with torch.npu.stream(side):
        used.fill_(1)
    used.record_stream(side)
    torch.npu.synchronize()
    assert ctypes.CDLL("libascendcl.so").cannSimSetFaults(b"aclrtRecordEvent:every=1,code=507899") == 0
    del used
    assert ctypes.CDLL("libascendcl.so").cannSimSetFaults(b"") == 0
    return [caught(allocate, 5 * MIB), caught(allocate, 5 * MIB)]
