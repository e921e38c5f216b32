"""An operator that fails where nobody sees it: in torch_npu's task queue."""

import ctypes
import os
import time

import torch

from scenarios.common import MIB, allocate, caught, stats


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


def uncached_late():
    """The variable is set after everything was imported, but before the first use."""
    os.environ["PYTORCH_NO_NPU_MEMORY_CACHING"] = "1"
    data = allocate(MIB)
    return {"bytes": data.nbytes, "reserved": torch.npu.memory_reserved()}
