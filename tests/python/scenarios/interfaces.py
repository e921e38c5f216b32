"""Functions that have several names, or that torch has for every accelerator."""

import warnings

import torch

from scenarios.common import MIB, allocate, both_stats, caught


def older_names():
    """The older names of torch_npu's functions, and what they warn of."""
    npu = torch.npu
    keep = allocate(3 * MIB)
    allocate(40 * MIB)
    rows = {}
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        rows["cached"] = npu.memory_cached()
        rows["max cached"] = npu.max_memory_cached()
        npu.reset_max_memory_allocated()
        rows["reset allocated"] = both_stats()
        allocate(80 * MIB)
        npu.reset_max_memory_cached()
        rows["reset cached"] = both_stats()
        rows["nested"] = npu.memory_stats_as_nested_dict()
    return {"rows": rows, "warnings": sorted({str(one.message) for one in seen}),
            "kept": keep.nbytes}


def accelerator():
    """torch.accelerator's functions for memory."""
    module = torch.accelerator
    keep = allocate(3 * MIB)
    allocate(40 * MIB)
    rows = {"stats": dict(module.memory_stats())}
    names = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved",
             "get_memory_info")
    for name in names:
        rows[name] = getattr(module, name)()
        rows[name + " 0"] = getattr(module, name)(0)
        rows[name + " 99"] = caught(getattr(module, name), 99)["types"]
    module.empty_cache()
    rows["emptied"] = module.memory_reserved()
    rows["free"] = module.get_memory_info()
    module.reset_peak_memory_stats()
    module.reset_accumulated_memory_stats()
    rows["reset"] = dict(module.memory_stats())
    return rows | {"kept": keep.nbytes}


def used():
    return allocate(3 * MIB).nbytes
