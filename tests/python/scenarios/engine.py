"""Which kind of segments serves requests where `expandable_segments` is not given."""

import torch

from scenarios.common import KIB, MIB, allocate, caught, pick, stats

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


def refused(plugin):
    """The plug-in with a variable that it can't read."""
    return {"error": caught(torch.ops.load_library, plugin)}
