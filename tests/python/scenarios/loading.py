"""When and how the plug-in is loaded; settings."""

import ctypes

import torch

from scenarios.common import MIB, allocate, both_stats, caught, caught_unchanged, stats
from scenarios.own_allocators import own


def used():
    """Whether anything can be allocated; and what it takes."""
    allocate(3 * MIB)
    return both_stats()


def too_late(plugin):
    """The plug-in after the device is in use: refused, and the device goes on."""
    tensor = allocate(3 * MIB)
    result = caught_unchanged(torch.ops.load_library, plugin)
    del tensor
    result["address"] = allocate(3 * MIB).data_ptr() != 0
    result["stats"] = stats()
    return result


def after_another(plugin):
    """The plug-in where the program has put another allocator in place: refused, and that one stays."""
    torch.npu.memory.change_current_allocator(own())
    error = caught(torch.ops.load_library, plugin)
    return {"error": error, "used": ctypes.CDLL(plugin).npualloc_is_registered(),
            "backend": torch.npu.memory.get_allocator_backend()}


def before_another(plugin):
    """Whether npualloc says that it is in use, before the program puts another allocator in place and afterwards."""
    library = ctypes.CDLL(plugin)
    used = [library.npualloc_is_registered()]
    torch.npu.memory.change_current_allocator(own())
    return [*used, library.npualloc_is_registered()]


def twice(plugin):
    """Loading it again changes nothing."""
    before = both_stats()
    error = caught(torch.ops.load_library, plugin)
    allocate(3 * MIB)
    return {"error": error, "before": before, **both_stats()}


def closed(plugin):
    """Who opened the library closes it, as a program with plug-ins of its own may."""
    close = ctypes.CDLL(None).dlclose
    close.argtypes = [ctypes.c_void_p]
    failed = close(ctypes.CDLL(plugin)._handle)
    allocate(3 * MIB)
    used = ctypes.CDLL(plugin).npualloc_is_registered()
    return {"failed": failed, "used": used, "stats": stats()}


def settings(text):
    """Settings while running."""
    allocate(3 * MIB)
    return caught_unchanged(torch.npu.memory._set_allocator_settings, text)


def setting_holds():
    """A setting made while running is obeyed."""
    torch.npu.memory._set_allocator_settings("max_split_size_mb:32")
    keep = allocate(64 * MIB)
    del keep
    # A 40 MiB request may not cut the free 64 MiB block.
    keep = allocate(40 * MIB)
    return both_stats()
