"""Allocators of the user's own: as the current one, and as a pool's."""

import os
import threading

import torch

from scenarios.common import MIB, allocate, caught, pick, stats
from scenarios.probe import Probe, refused

NAMES = ["allocated_bytes.all.current", "reserved_bytes.all.current", "num_device_alloc"]


def own():
    """A counting allocator from the probe's functions."""
    return torch.npu.memory.NPUPluggableAllocator(
        os.environ["NPUALLOC_PROBE"], "probe_own_malloc", "probe_own_free"
    )


def changed():
    """change_current_allocator before the device is used."""
    torch.npu.memory.change_current_allocator(own())
    tensor = allocate(3 * MIB)
    probe = Probe()
    counts = [probe.own_counts()]
    del tensor
    counts.append(probe.own_counts())
    return {
        "counts": counts,
        "backend": torch.npu.memory.get_allocator_backend(),
        "name": probe.name(),
    }


def changed_late():
    """After the device was used it is refused, and nothing changes."""
    tensor = allocate(3 * MIB)
    error = caught(torch.npu.memory.change_current_allocator, own())
    del tensor
    again = allocate(3 * MIB)
    return {"error": error, "backend": torch.npu.memory.get_allocator_backend(),
            "again": again.nbytes, **pick(stats(), *NAMES, "allocation.all.allocated")}


def no_such_function():
    """A function that the library lacks."""
    make = torch.npu.memory.NPUPluggableAllocator
    path = os.environ["NPUALLOC_PROBE"]
    return [
        caught(make, path, "no_such_function", "probe_own_free")["types"],
        caught(make, "/no/such/library.so", "a", "b")["types"],
    ]


def pool_of_its_own():
    """A MemPool's own allocator supplies its segments."""
    mine = own()
    pool = torch.npu.memory.MemPool(mine.allocator())
    probe = Probe()
    stages = []

    def stage():
        stages.append([*probe.own_counts(), pick(stats(), *NAMES)])

    with torch.npu.memory.use_mem_pool(pool):
        first, second = allocate(3 * MIB), allocate(5 * MIB)
        stage()
        del first
        third = allocate(2 * MIB)
        stage()
    outside = allocate(3 * MIB)
    stage()
    del second, third
    torch.npu.empty_cache()
    stage()
    segments = [[s["total_size"], s["segment_pool_id"] == pool.id] for s in pool.snapshot()]
    del pool
    torch.npu.empty_cache()
    stage()
    return {"stages": stages, "segments": segments, "kept": outside.nbytes}


def exhausted():
    """A pool's own allocator has nothing; then it has."""
    mine = own()
    pool = torch.npu.memory.MemPool(mine.allocator())
    with torch.npu.memory.use_mem_pool(pool):
        error = caught(allocate, 2048 * MIB)
        kept = allocate(30 * MIB)
    return {"error": error, "kept": kept.nbytes, **pick(stats(), *NAMES, "num_ooms")}


def shared_again():
    """Memory of a pool's own allocator is shared, goes back, and comes again at the same address."""
    mine = own()
    probe = Probe()

    def shared():
        pool = torch.npu.memory.MemPool(mine.allocator())
        with torch.npu.memory.use_mem_pool(pool):
            tensor = allocate(30 * MIB)
        address = tensor.data_ptr()
        text, _ = probe.share(address)
        del tensor, pool
        torch.npu.empty_cache()
        return address, text

    first, second = shared(), shared()
    return {"same address": first[0] == second[0], "same text": first[1] == second[1],
            "counts": probe.own_counts()}


def made_meanwhile(rounds):
    """Pools with an allocator of their own are made while another thread empties the cache. What failed."""
    probe = Probe()
    side = torch.npu.Stream()
    done = threading.Event()

    def empty():
        torch.npu.set_device(0)
        while not done.is_set():
            probe.empty_cache(1)

    thread = threading.Thread(target=empty, daemon=True)
    thread.start()
    failures = []
    for number in range(rounds):
        # As torch numbers pools: it finds them by one of the two numbers.
        pool = (1000 + number, 0)
        probe.pool_create_own(0, *pool)
        probe.pool_begin(0, *pool, side.npu_stream)
        failures.append(refused(use, probe, side))
        probe.pool_end(0, *pool)
        # Its maker's use and the scope's.
        probe.pool_release(0, *pool)
        probe.pool_release(0, *pool)
    done.set()
    thread.join()
    return [failure for failure in failures if failure]


def use(probe, stream):
    probe.raw_delete(probe.raw_alloc_with_stream(30 * MIB, stream.npu_stream))


def current():
    """The wrapper of the current allocator."""
    allocate(1000)
    return type(torch.npu.memory._get_current_allocator().allocator()).__name__


def busy():
    """A pool's allocator that empties the cache as it goes: because its number is taken again, and as the cache is emptied."""
    probe = Probe()
    pool = (1000, 0)
    for _ in range(2):
        probe.pool_create_busy(0, *pool)
        probe.pool_release(0, *pool)
        probe.free_device_cached_memory(0)
    probe.empty_cache(1)


def gone():
    """Two pools of one number come and go, each with its own allocator; nobody looks which are gone in between.
    How many of the allocators are gone, and the last one, after each step."""
    probe = Probe()
    probe.free(probe.allocate(30 * MIB))
    pool = (1000, 0)
    rows = []
    for _ in range(2):
        probe.pool_create_own(0, *pool)
        rows.append(probe.pool_own_gone())
        probe.pool_release(0, *pool)
        probe.free_device_cached_memory(0)
        rows.append(probe.pool_own_gone())
    probe.empty_cache(1)
    rows.append(probe.pool_own_gone())
    return rows
