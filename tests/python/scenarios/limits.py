"""Running out of memory, the memory fraction, giving the cache back."""

import ctypes
import warnings

import torch

from scenarios.common import GIB, MIB, allocate, both_stats, caught, pick, stats

NAMES = [
    "allocated_bytes.all.current",
    "reserved_bytes.all.current",
    "num_alloc_retries",
    "num_ooms",
    "num_device_alloc",
    "num_device_free",
]


def out_of_memory(size):
    """A request for more than is left; then one that fits."""
    keep = [allocate(100 * MIB), allocate(700)]
    before = pick(stats(), *NAMES)
    error = caught(allocate, size)
    after = pick(stats(), *NAMES)
    keep.append(allocate(10 * MIB))
    return {"error": error, "before": before, "after": after, "then": both_stats()}


def is_caught_as(size):
    """The exception's place in Python's hierarchy."""
    seen = []
    for kind in (torch.OutOfMemoryError, RuntimeError):
        try:
            allocate(size)
        except kind:
            seen.append(True)
    return seen


def retry_after_freeing_cache():
    """Cached segments are given back to serve a request that needs their memory."""
    for size in (300, 400):
        allocate(size * MIB)
    cached = pick(stats(), *NAMES)
    tensor = allocate(900 * MIB)
    return {"size": tensor.nbytes, "cached": cached, "after": both_stats()}


def fill_and_free(size):
    """Fills the device with tensors until one fails, several times over."""
    rounds = []
    for _ in range(3):
        live, error = [], None
        while error is None:
            error = caught(lambda: live.append(allocate(size)))
        rounds.append({"count": len(live), "error": error["types"][0], **pick(stats(), *NAMES)})
        live.clear()
    torch.npu.empty_cache()
    return {"rounds": rounds, "end": both_stats()}


def empty_cache():
    """Whole free segments go back to the device; partly used ones stay."""
    keep = allocate(1 * MIB + 1)
    for size in (500, 3 * MIB, 30 * MIB, 200 * MIB):
        allocate(size)
    free, _ = torch.npu.mem_get_info()
    before = both_stats()
    torch.npu.empty_cache()
    after = both_stats()
    grown = torch.npu.mem_get_info()[0] - free
    del keep
    torch.npu.empty_cache()
    return {"grown": grown, "stages": [before, after, both_stats()]}


def empty_cache_before_use():
    """On a device nobody has used it does nothing and raises nothing."""
    torch.npu.empty_cache()
    torch.accelerator.empty_cache()
    return stats()


def fraction(part, size):
    """A request within the device's memory but above the fraction allowed."""
    torch.npu.set_per_process_memory_fraction(part)
    error = caught(allocate, size)
    read = torch.npu.memory.get_per_process_memory_fraction()
    fits = allocate(size // 4).nbytes
    limited = pick(stats(), *NAMES)
    torch.npu.set_per_process_memory_fraction(1.0)
    lifted = allocate(size).nbytes
    return {"error": error, "read": read, "fits": fits, "limited": limited, "lifted": lifted}


def bad_fractions():
    """Values and devices that are refused, and that they change nothing."""
    module = torch.npu.memory
    module.set_per_process_memory_fraction(0.5)
    low_level = __import__("torch_npu")._C._npu_setMemoryFraction
    errors = {
        "above": caught(module.set_per_process_memory_fraction, 1.5),
        "below": caught(module.set_per_process_memory_fraction, -0.1),
        "text": caught(module.set_per_process_memory_fraction, "half"),
        "device": caught(module.set_per_process_memory_fraction, 0.25, 99),
        "allocator above": caught(low_level, 1.5, 0),
        "allocator below": caught(low_level, -0.1, 0),
        "allocator nan": caught(low_level, float("nan"), 0),
        "allocator device": caught(low_level, 0.25, 99),
        "allocator negative device": caught(low_level, 0.25, -1),
        "read device": caught(module.get_per_process_memory_fraction, 99),
    }
    return {"errors": errors, "fraction": module.get_per_process_memory_fraction()}


def absurd():
    """Sizes no device has."""
    raw = torch.npu.caching_allocator_alloc
    return {
        "tensor": caught(allocate, 1 << 60),
        "raw": caught(raw, 1 << 60),
        "more": caught(raw, (1 << 63) - 1),
        "big": caught(allocate, 900 * GIB),
        **both_stats(),
    }


def device_faults(codes):
    """What a request says that the device fails with each of these codes; one that works afterwards."""
    set_faults = ctypes.CDLL("libascendcl.so").cannSimSetFaults
    texts = []
    for code in codes:
        assert set_faults(f"aclrtMalloc:every=1,code={code}".encode()) == 0
        texts.append(caught(allocate, 40 * MIB))
    assert set_faults(b"") == 0
    return {"texts": texts, "then": allocate(40 * MIB).nbytes}


def failing_call(call, code=507899):
    """What a request says where a function of the runtime fails."""
    set_faults = ctypes.CDLL("libascendcl.so").cannSimSetFaults
    assert set_faults(f"{call}:every=1,code={code}".encode()) == 0
    error = caught(allocate, 40 * MIB)
    assert set_faults(b"") == 0
    return error


def grown_then_refused():
    """Ever larger requests, each of which needs what the ones before left in the cache; then one above the limit."""
    served = []
    for mib in range(100, 450, 50):
        served.append(allocate(mib * MIB).nbytes)
    error = caught(allocate, 600 * MIB)
    return {"served": served, "error": error,
            **pick(stats(), "num_alloc_retries", "num_ooms", "num_oom_rejections")}


def without_pages_of_1g():
    """The driver has set no 1 GiB pages aside, and warnings are exceptions."""
    warnings.simplefilter("error")
    keep = [allocate(3 * MIB), allocate(GIB)]
    return [[one.nbytes for one in keep], torch.npu.memory_reserved()]


def told_with_codes():
    """What errors on another device than the first one say below their first line."""
    torch.npu.set_device(1)
    allocate(1)
    low_level = __import__("torch_npu")._C
    calls = {
        "fraction": (low_level._npu_setMemoryFraction, 1.5, 0),
        "device": (low_level._npu_memoryStats, 99),
        "pool": (low_level._npu_getCheckpointState, 1, (77, 1)),
        "release": (low_level._npu_releasePool, 1, (77, 2)),
    }
    # It is released, but its memory is in use.
    low_level._npu_beginAllocateToPool(1, (77, 2))
    kept = allocate(1)
    low_level._npu_endAllocateToPool(1, (77, 2))
    low_level._npu_releasePool(1, (77, 2))
    rows = {name: caught(*call)["message"].splitlines()[1:] for name, call in calls.items()}
    return rows | {"kept": kept.nbytes}
