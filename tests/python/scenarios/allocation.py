"""Allocate and free, on one stream."""

import random

import torch

from scenarios.common import MIB, allocate, both_stats, pick, stats

#: Around every limit of the rounding and of the pools.
SIZES = [
    1, 31, 32, 479, 480, 481, 512, 4096, 65536,
    MIB - 33, MIB - 32, MIB - 31, MIB, MIB + 1,
    2 * MIB, 5 * MIB, 10 * MIB - 33, 10 * MIB - 32, 10 * MIB, 10 * MIB + 1,
    19 * MIB, 20 * MIB, 21 * MIB, 64 * MIB, 1000 * MIB,
]


def sizes():
    """Each size on an empty cache: what it takes, and from what segment."""
    rows = []
    torch.npu.init()
    for size in SIZES:
        torch.npu.empty_cache()
        before = stats()
        tensor = allocate(size)
        after = stats()
        rows.append(
            {
                "size": size,
                "aligned": tensor.data_ptr() % 512 == 0,
                "allocated": grown(before, after, "allocated_bytes.all.current"),
                "requested": grown(before, after, "requested_bytes.all.current"),
                "reserved": grown(before, after, "reserved_bytes.all.current"),
                "small": grown(before, after, "allocation.small_pool.current"),
                "large": grown(before, after, "allocation.large_pool.current"),
            }
        )
        del tensor
    return rows


def grown(before, after, name):
    return after[name] - before[name]


def nothing():
    """Zero bytes take no memory and have no address."""
    tensor = allocate(0)
    return {"address": tensor.data_ptr(), **both_stats()}


def reuse():
    """A freed block serves the next request of its size, from the cache."""
    first = allocate(3 * MIB)
    address = first.data_ptr()
    reserved = stats()["reserved_bytes.all.current"]
    del first
    second = allocate(3 * MIB)
    names = ["reserved_bytes.all.current", "num_device_alloc", "allocation.all.allocated"]
    return {
        "same": second.data_ptr() == address,
        "reserved": reserved,
        **pick(stats(), *names),
    }


def split_and_merge():
    """Statistics at each stage of cutting a segment up and joining it again."""
    stages = []
    tensors = [allocate(2 * MIB) for _ in range(9)]
    stages.append(both_stats())
    for index in (1, 3, 5, 2, 4):
        tensors[index] = None
        stages.append(both_stats())
    # Five neighbours are one free block now: it fits without a new segment.
    whole = allocate(10 * MIB)
    stages.append(both_stats())
    del tensors, whole
    stages.append(both_stats())
    torch.npu.empty_cache()
    stages.append(both_stats())
    return stages


def best_fit():
    """Of two free blocks the smaller that fits is taken."""
    keep = [allocate(64 * MIB), allocate(32 * MIB), allocate(48 * MIB)]
    addresses = [tensor.data_ptr() for tensor in keep]
    keep.clear()
    taken = [allocate(size) for size in (30 * MIB, 40 * MIB, 60 * MIB)]
    return {
        "order": [addresses.index(tensor.data_ptr()) for tensor in taken],
        **both_stats(),
    }


def walk(seed, steps, largest, streams=1):
    """Random allocations and frees; statistics now and then."""
    chance = random.Random(seed)
    lanes = [torch.npu.current_stream()]
    lanes += [torch.npu.Stream() for _ in range(streams - 1)]
    live, seen = [], []
    for step in range(steps):
        if live and (len(live) > 200 or chance.random() < 0.48):
            live.pop(chance.randrange(len(live)))
        else:
            # As many small ones as large ones, of every order of magnitude.
            size = int(2 ** chance.uniform(5, largest.bit_length() - 1))
            with torch.npu.stream(chance.choice(lanes)):
                live.append(allocate(size))
        if step % 50 == 0:
            seen.append(stats())
    live.clear()
    seen.append(stats())
    torch.npu.empty_cache()
    seen.append(stats())
    return seen


def contents(seed, steps):
    """Writes each tensor its own number and reads it back when it is freed:
    on backed memory, two live tensors at one address would show."""
    chance = random.Random(seed)
    live, wrong, checked = [], 0, 0
    for number in range(steps):
        if live and (len(live) > 40 or chance.random() < 0.45):
            tensor, expected = live.pop(chance.randrange(len(live)))
            wrong += int((tensor.cpu() != expected).any())
            checked += 1
            del tensor
        size = int(2 ** chance.uniform(0, 22))
        value = number % 251
        tensor = torch.full((size,), value, dtype=torch.uint8).to("npu")
        live.append((tensor, value))
    for tensor, expected in live:
        wrong += int((tensor.cpu() != expected).any())
        checked += 1
    return {"wrong": wrong, "checked": checked}
