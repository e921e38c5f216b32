"""The allocator behind the wrapper that measures it."""

import ctypes

from scenarios.common import MIB, allocate
from scenarios.streams import pending_use


def wrapped(plugin):
    """Wraps twice, allocates and frees, then has memory in use elsewhere: what the wrapper says and counts."""
    library = ctypes.CDLL(plugin)
    wraps = [library.npualloc_timing_wrap() for _ in range(2)]
    tensors = [allocate(size) for size in (700, 3 * MIB, 40 * MIB)]
    counts = [calls(library)]
    tensors.clear()
    counts.append(calls(library))
    return {"wraps": wraps, "registered": library.npualloc_is_registered(), "calls": counts, "use": pending_use()}


def calls(library):
    """Calls that were measured."""
    count, nanoseconds = ctypes.c_uint64(), ctypes.c_uint64()
    library.npualloc_timing_read(ctypes.byref(count), ctypes.byref(nanoseconds))
    return count.value
