"""Caches emptied with and without a check for errors, while the device's driver fails."""

import ctypes

import torch

from scenarios.common import MIB, allocate, caught, stats
from scenarios.probe import Probe, refused


def emptied(call):
    """Emptied unchecked, then checked, while a call fails; operators' workspaces are cached, and a use of freed memory
    is pending. What each says, and which memory is left."""
    runtime = ctypes.CDLL("libascendcl.so")
    assert runtime.cannSimSetWorkspace(ctypes.c_uint64(300 * MIB)) == 0
    probe = Probe()
    side = torch.npu.Stream()
    rows = []
    for check in (0, 1):
        tensor = torch.ones(1000, 1000, device="npu")
        tensor = tensor @ tensor
        with torch.npu.stream(side):
            tensor.fill_(1)
        tensor.record_stream(side)
        del tensor
        before = taken()
        assert runtime.cannSimSetFaults(f"{call}:every=1,code=507899".encode()) == 0
        error = refused(probe.empty_cache, check)
        assert runtime.cannSimSetFaults(b"") == 0
        rows.append([before > 300 * MIB, error, taken(), stats()["reserved_bytes.all.current"]])
    torch.npu.synchronize()
    torch.npu.empty_cache()
    return {"rows": rows, "reserved": stats()["reserved_bytes.all.current"], "kept": allocate(3 * MIB).nbytes}


def requested_next():
    """After an unchecked release, a request needs what is cached, and the wait for the device fails; then it doesn't."""
    runtime = ctypes.CDLL("libascendcl.so")
    Probe().empty_cache(0)
    allocate(600 * MIB)
    assert runtime.cannSimSetFaults(b"aclrtSynchronizeDevice:every=1,code=507899") == 0
    error = caught(allocate, 700 * MIB)
    assert runtime.cannSimSetFaults(b"") == 0
    return {"error": error, "then": allocate(700 * MIB).nbytes}


def taken():
    """Memory that the device has given away."""
    free, total = torch.npu.mem_get_info()
    return total - free
