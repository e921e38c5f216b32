"""Which kind of segments serves requests where `expandable_segments` is not given."""

import ctypes
import time

import torch

from scenarios.common import GIB, KIB, MIB, allocate, caught, ladder, pick, stats

NAMES = [
    "allocated_bytes.all.current",
    "active_bytes.all.current",
    "requested_bytes.all.current",
    "reserved_bytes.all.current",
]


def kinds():
    """Kinds of the segments under small and large blocks, and what is left after they are gone."""
    tensors = [allocate(size) for size in (700, 300 * KIB, 3 * MIB, 64 * MIB)]
    found = [segment["is_expandable"] for segment in torch.npu.memory_snapshot()]
    full = pick(stats(), *NAMES)
    tensors.clear()
    torch.npu.empty_cache()
    free, total = torch.npu.mem_get_info()
    return {"expandable": found, "full": full, "taken": total - free, "end": pick(stats(), *NAMES)}


def counted():
    """Counts of segments and splits with one block in use, and the actions that history has of it."""
    torch.npu.memory._record_memory_history(max_entries=1000)
    keep = allocate(3 * MIB)
    names = ["segment.all.current", "inactive_split.all.current", "inactive_split_bytes.all.current"]
    traces = torch.npu.memory._snapshot()["device_traces"][0]
    return {"counts": pick(stats(), *names), "held": keep.nbytes,
            "actions": sorted({entry["action"] for entry in traces})}


def last_error():
    """What the runtime keeps as the thread's last error once memory was had on a device that is nearly full."""
    held = [allocate(100 * MIB) for _ in range(9)]
    del held[6], held[4], held[2]
    held.append(allocate(250 * MIB))
    return ctypes.CDLL("libascendcl.so").aclrtPeekAtLastError(0)


def grown(plugin):
    """Pages obtained ahead while memory grows, and what is left after it is gone."""
    tensors = []
    for _ in range(64):
        tensors.append(allocate(24 * MIB))
        torch.npu.synchronize()
        # The thread gets its turn, however busy the machine is.
        time.sleep(0.005)
    counts = ladder(plugin)
    full = pick(stats(), *NAMES)
    tensors.clear()
    torch.npu.empty_cache()
    return {
        "ahead": counts["pages_prefetched"], "asked": counts["pages_new"],
        "full": full, "taken": taken(), "end": pick(stats(), *NAMES),
    }


def refused(plugin):
    """The plug-in with a variable that it can't read."""
    return {"error": caught(torch.ops.load_library, plugin)}


def taken():
    """Memory that the device has given away."""
    free, total = torch.npu.mem_get_info()
    return total - free


def change(library, name, pool=(0, 0), everything=1):
    """Bytes, or the error."""
    function = getattr(library, name)
    function.restype = ctypes.c_char_p
    changed = ctypes.c_uint64()
    numbers = [ctypes.c_uint64(number) for number in pool]
    error = function(0, *numbers, everything, ctypes.byref(changed))
    return changed.value if error is None else error.decode()


def sleep_disturbed(plugin):
    """The driver fails where the device is to sleep, and another process has its memory when it is to wake up: what is
    told, and what the device holds and the tensor needs in the end."""
    runtime = ctypes.CDLL("libascendcl.so")
    library = ctypes.CDLL(plugin)
    tensor = allocate(400 * MIB)
    held = taken()
    assert runtime.cannSimSetFaults(b"aclrtUnmapMem:every=1,code=507899") == 0
    told = [change(library, "npualloc_sleep")]
    assert runtime.cannSimSetFaults(b"") == 0
    change(library, "npualloc_sleep")
    assert runtime.cannSimSetExternalUsage(0, ctypes.c_uint64(700 * MIB)) == 0
    told.append(change(library, "npualloc_wake_up"))
    assert runtime.cannSimSetExternalUsage(0, ctypes.c_uint64(0)) == 0
    change(library, "npualloc_wake_up")
    tensor.fill_(5)
    return {"told": told, "held": held, "used": taken()}


def sleep(plugin):
    """The device sleeps and wakes; then a pool alone."""
    library = ctypes.CDLL(plugin)
    tensor = torch.full((4 * MIB,), 3, dtype=torch.uint8).npu()
    small = torch.arange(5).npu()
    idle = allocate(GIB // 4)
    del idle
    places = [tensor.data_ptr(), small.data_ptr()]
    result = {"slept": change(library, "npualloc_sleep"), "taken asleep": taken()}
    result["refused"] = caught(allocate, MIB)
    result["woken"] = change(library, "npualloc_wake_up")
    result["taken awake"] = taken()
    result["same places"] = places == [tensor.data_ptr(), small.data_ptr()]
    tensor.fill_(7)
    small.copy_(torch.arange(5) * 2)
    result["contents"] = [tensor.cpu().unique().tolist(), small.cpu().tolist()]
    pool = torch.npu.MemPool()
    with torch.npu.use_mem_pool(pool):
        inside = torch.ones(40 * MIB, dtype=torch.uint8, device="npu")
    result["pool slept"] = change(library, "npualloc_sleep", pool.id, 0)
    result["outside"] = tensor.cpu().unique().tolist()
    result["still served"] = allocate(MIB).data_ptr() != 0
    result["pool woken"] = change(library, "npualloc_wake_up", pool.id, 0)
    inside.fill_(9)
    result["inside"] = inside.cpu().unique().tolist()
    result["unknown"] = change(library, "npualloc_sleep", (77, 78), 0)
    return result
