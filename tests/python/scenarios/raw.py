"""Memory by address: caching_allocator_alloc and caching_allocator_delete."""

import torch

from scenarios.common import MIB, allocate, both_stats, caught, caught_unchanged, stats


def alloc_and_delete():
    """Memory without a tensor, counted like any other."""
    torch.npu.init()
    stages = [both_stats()]
    address = torch.npu.caching_allocator_alloc(3 * MIB)
    stages.append(both_stats())
    torch.npu.caching_allocator_delete(address)
    stages.append(both_stats())
    again = torch.npu.caching_allocator_alloc(3 * MIB)
    stages.append(both_stats())
    torch.npu.caching_allocator_delete(again)
    return {"aligned": address % 512 == 0, "same": again == address, "stages": stages}


def on_a_stream():
    """The stream that is named owns the memory."""
    side = torch.npu.Stream()
    address = torch.npu.caching_allocator_alloc(30 * MIB, stream=side)
    torch.npu.caching_allocator_delete(address)
    other = torch.npu.caching_allocator_alloc(30 * MIB)
    same = torch.npu.caching_allocator_alloc(30 * MIB, stream=side.npu_stream)
    result = {"other": other == address, "same": same == address, **both_stats()}
    for taken in (other, same):
        torch.npu.caching_allocator_delete(taken)
    return result


def nothing():
    """Zero bytes, and deleting a null pointer."""
    address = torch.npu.caching_allocator_alloc(0)
    error = caught(torch.npu.caching_allocator_delete, 0)
    return {"address": address, "error": error, **both_stats()}


def unknown_pointers():
    """Addresses that are not the start of a live block."""
    delete = torch.npu.caching_allocator_delete
    address = torch.npu.caching_allocator_alloc(3 * MIB)
    tensor = allocate(3 * MIB)
    errors = {
        "unknown": caught_unchanged(delete, 0xDEAD0000),
        "inside": caught_unchanged(delete, address + 512),
        "negative": caught_unchanged(delete, -1),
        "no number": caught_unchanged(delete, "address"),
    }
    delete(address)
    errors["twice"] = caught_unchanged(delete, address)
    for _ in range(3):
        delete(torch.npu.caching_allocator_alloc(4096))
    errors["after one came and went"] = caught_unchanged(delete, 1)
    return {"errors": errors, "kept": tensor.nbytes, "stats": stats()}


def bad_stream():
    """A stream that is none."""
    allocate(1)
    return caught_unchanged(torch.npu.caching_allocator_alloc, 100, stream="fast")
