"""Uncorrectable memory errors, and a device that is stopped and started again."""

import ctypes

import torch
import torch_npu

from scenarios.common import MIB, allocate, caught, pick, stats
from scenarios.probe import Probe, refused
from scenarios.virtuals import aligned_elsewhere

NAMES = ["allocated_bytes.all.current", "reserved_bytes.all.current", "active_bytes.all.current"]


def hit(address, size=4096):
    """The device finds memory to be bad."""
    inject = ctypes.CDLL("libascendcl.so").cannSimInjectUce
    inject.argtypes = [ctypes.c_int32, ctypes.c_uint64, ctypes.c_uint64]
    assert inject(0, address, size) == 0


def noticed():
    """The first wait for the device fails; torch_npu notes what is bad and stops the device."""
    error = caught(torch.npu.synchronize)
    torch_npu.npu.stop_device(0)
    # The device answers again once its work was aborted; the memory stays bad.
    assert ctypes.CDLL("libascendcl.so").cannSimBreakDevice(0, 0) == 0
    return error


def checked(where):
    """check_uce_in_memory: nothing bad, outside the pool, in cached, in live memory, and both in a
    private pool."""
    pool = torch.npu.memory.MemPool()
    with torch.npu.memory.use_mem_pool(pool):
        private, idle = allocate(30 * MIB), allocate(50 * MIB)
    keep = allocate(40 * MIB)
    temporary = allocate(80 * MIB)
    address = {"live": keep.data_ptr() + MIB, "cached": temporary.data_ptr() + MIB,
               "live in a pool": private.data_ptr() + MIB,
               "cached in a pool": idle.data_ptr() + MIB,
               "outside": Probe().driver_memory(4 * MIB), "none": None}[where]
    del temporary, idle
    error = None
    if address is not None:
        hit(address)
        error = noticed()
    found = torch_npu.npu.check_uce_in_memory(0)
    # What is to be repaired is only what lies in blocks.
    listed = len(torch_npu._C._npu_get_uce_addr())
    again = torch_npu.npu.check_uce_in_memory(0)
    copied = caught(keep.cpu)
    after = pick(stats(), *NAMES)
    torch_npu.npu.restart_device(0)
    return {"found": found, "listed": listed, "again": again,
            "error": error and error["line"].split("error code is")[-1],
            "copied": copied and [copied["types"], copied["line"]],
            "then": allocate(3 * MIB).nbytes, "kept": keep.nbytes + private.nbytes, **after}


def blocks():
    """Marks of blocks: hit ones, all, and safe again."""
    probe = Probe()
    keep = [probe.allocate(size) for size in (3 * MIB, 40 * MIB)]
    safe = [[probe.block_is_safe(block) for block in keep]]
    hit(probe.data(keep[1]) + 512)
    noticed()
    found = probe.check_uce(0)
    safe.append([probe.block_is_safe(block) for block in keep])
    probe.update_to_safe(keep[1])
    safe.append([probe.block_is_safe(block) for block in keep])
    probe.mark_all_unsafe(0)
    safe.append([probe.block_is_safe(block) for block in keep])
    torch_npu.npu.restart_device(0)
    new = probe.allocate(700)
    safe.append(probe.block_is_safe(new))
    empty = probe.allocate(0)
    return {"found": found, "safe": safe, "empty": probe.block_is_safe(empty)}


def across_blocks():
    """Marks of two neighbours where the bad memory begins in the first and ends in the second."""
    probe = Probe()
    keep = [probe.allocate(3 * MIB) for _ in range(3)]
    data = [probe.data(block) for block in keep]
    hit(data[1] - 512, 4096)
    noticed()
    found = probe.check_uce(0)
    safe = [probe.block_is_safe(block) for block in keep]
    torch_npu.npu.restart_device(0)
    return {"found": found, "neighbours": data == sorted(data), "safe": safe}


def aligned_block():
    """Marks of a block whose data do not begin where its memory does: hit, and safe again."""
    probe = Probe()
    block, _ = aligned_elsewhere(probe)
    safe = [probe.block_is_safe(block)]
    hit(probe.data(block) + 512)
    noticed()
    found = probe.check_uce(0)
    safe.append(probe.block_is_safe(block))
    probe.update_to_safe(block)
    safe.append(probe.block_is_safe(block))
    torch_npu.npu.restart_device(0)
    return {"found": found, "safe": safe}


def restarted():
    """stop_device and restart_device: pending uses are forgotten, the device works."""
    side = torch.npu.Stream()
    tensor = allocate(30 * MIB)
    address = tensor.data_ptr()
    with torch.npu.stream(side):
        tensor.fill_(1)
    tensor.record_stream(side)
    del tensor
    stages = [pick(stats(), *NAMES)]
    stopped = torch_npu.npu.stop_device(0)
    torch_npu.npu.restart_device(0)
    stages.append(pick(stats(), *NAMES))
    again = allocate(30 * MIB)
    reused = again.data_ptr() == address
    del again
    torch.npu.empty_cache()
    stages.append(pick(stats(), *NAMES))
    return {"stopped": stopped, "stages": stages, "reused": reused}


def wrong_device():
    """Devices that are not there."""
    probe = Probe()
    keep = probe.allocate(3 * MIB)
    return {
        "check": refused(probe.check_uce, 99),
        "mark": refused(probe.mark_all_unsafe, 99),
        "still safe": probe.block_is_safe(keep),
    }
