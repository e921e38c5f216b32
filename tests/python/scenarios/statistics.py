"""Statistics: every key, resets, the summary."""

import torch

from scenarios.common import MIB, allocate, both_stats, stats


def busy():
    """Some of everything, live and freed, small and large."""
    keep = [allocate(1000), allocate(3 * MIB), allocate(40 * MIB)]
    for size in (500, 700_000, 2 * MIB, 15 * MIB, 100 * MIB):
        allocate(size)
    return keep


def all_keys():
    """Both interfaces' statistics of a busy device."""
    keep = busy()
    return both_stats() | {"kept": len(keep)}


def readers():
    """The functions that read one figure each, and their fellow in the dictionary."""
    keep = busy()
    values = stats()
    free, total = torch.npu.mem_get_info()
    return {
        "memory_allocated": [torch.npu.memory_allocated(), values["allocated_bytes.all.current"]],
        "max_memory_allocated": [
            torch.npu.max_memory_allocated(),
            values["allocated_bytes.all.peak"],
        ],
        "memory_reserved": [torch.npu.memory_reserved(), values["reserved_bytes.all.current"]],
        "max_memory_reserved": [
            torch.npu.max_memory_reserved(),
            values["reserved_bytes.all.peak"],
        ],
        "accelerator.memory_allocated": [
            torch.accelerator.memory_allocated(),
            values["allocated_bytes.all.current"],
        ],
        "accelerator.max_memory_allocated": [
            torch.accelerator.max_memory_allocated(),
            values["allocated_bytes.all.peak"],
        ],
        "accelerator.memory_reserved": [
            torch.accelerator.memory_reserved(),
            values["reserved_bytes.all.current"],
        ],
        "accelerator.max_memory_reserved": [
            torch.accelerator.max_memory_reserved(),
            values["reserved_bytes.all.peak"],
        ],
        "taken from the device": [total - free, values["reserved_bytes.all.current"]],
        "kept": [len(keep), 3],
    }


def reset_peak(by):
    """Peaks before and after a reset, and after growing again."""
    keep = busy()
    before = both_stats()
    (torch.npu if by == "npu" else torch.accelerator).reset_peak_memory_stats()
    after = both_stats()
    keep.append(allocate(10 * MIB))
    return [before, after, both_stats()]


def reset_accumulated(by):
    """Totals before and after a reset, and after some more."""
    keep = busy()
    before = both_stats()
    (torch.npu if by == "npu" else torch.accelerator).reset_accumulated_memory_stats()
    after = both_stats()
    keep.append(allocate(10 * MIB))
    keep.clear()
    return [before, after, both_stats()]


def summary():
    """The readable table, long and short."""
    keep = busy()
    return [
        torch.npu.memory_summary(),
        torch.npu.memory_summary(abbreviated=True),
        torch.npu.memory_summary(device=1),
        len(keep),
    ]


def backend():
    """What torch_npu calls the allocator."""
    allocate(1)
    return torch.npu.memory.get_allocator_backend()


def training(steps):
    """A small model: forward, backward, AdamW; statistics after each step."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)
    ).npu()
    optimizer = torch.optim.AdamW(model.parameters())
    seen = []
    for step in range(steps):
        rows = 64 + 37 * step
        inputs = torch.randn(rows, 256).npu()
        loss = model(inputs).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen.append(stats())
    return seen
