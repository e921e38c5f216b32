"""torch.npu.MemPool and use_mem_pool with their options."""

import torch

from scenarios.common import GIB, MIB, allocate, both_stats, caught, pick, stats

NAMES = ["allocated_bytes.all.current", "reserved_bytes.all.current", "num_ooms"]


def on_oom(use):
    """use_on_oom lets a pool's idle memory serve others when there is no more."""
    pool = torch.npu.memory.MemPool(use_on_oom=use)
    with torch.npu.memory.use_mem_pool(pool):
        inside = allocate(700 * MIB)
    address = inside.data_ptr()
    del inside
    error, served = None, None
    try:
        served = allocate(600 * MIB)
    except torch.OutOfMemoryError as reason:
        error = str(reason).splitlines()[0]
    return {"served": served is not None and served.data_ptr() == address, "error": error,
            **pick(stats(), *NAMES)}


def no_split():
    """no_split gives each request a segment of its own."""
    pool = torch.npu.memory.MemPool(no_split=True)
    with torch.npu.memory.use_mem_pool(pool):
        keep = [allocate(size) for size in (700, 900, 3 * MIB, 30 * MIB)]
        keep[3] = None
        again = allocate(25 * MIB)
    segments = [
        [s["total_size"], [[b["size"], b["state"]] for b in s["blocks"]]] for s in pool.snapshot()
    ]
    return {"segments": sorted(segments), "kept": len(keep) + again.nbytes, **both_stats()}


def uses():
    """id, use_count and snapshot of a pool, alone and within use_mem_pool."""
    pool = torch.npu.memory.MemPool()
    counts = [pool.use_count()]
    with torch.npu.memory.use_mem_pool(pool):
        counts.append(pool.use_count())
        keep = allocate(3 * MIB)
    counts.append(pool.use_count())
    mine = torch.npu.memory_snapshot(pool.id)
    everything = torch.npu.memory_snapshot()
    return {
        "counts": counts,
        "id": [type(pool.id).__name__, len(pool.id)],
        "mine": [[s["total_size"], list(s["segment_pool_id"]) == list(pool.id)] for s in mine],
        "everything": len(everything),
        "kept": keep.nbytes,
        "private bytes": {
            k.split(".", 1)[0]: v for k, v in torch.accelerator.memory_stats().items()
            if "private" in k
        },
    }


def emptied():
    """empty_cache inside use_mem_pool, and after."""
    pool = torch.npu.memory.MemPool()
    stages = []
    allocate(40 * MIB)
    with torch.npu.memory.use_mem_pool(pool):
        allocate(30 * MIB)
        stages.append(pick(stats(), *NAMES))
        torch.npu.empty_cache()
        stages.append(pick(stats(), *NAMES))
    torch.npu.empty_cache()
    stages.append(pick(stats(), *NAMES))
    return stages


def nested():
    """A scope within a scope of the same pool is refused; of another it is not."""
    first, second = torch.npu.memory.MemPool(), torch.npu.memory.MemPool()
    sizes = []
    with torch.npu.memory.use_mem_pool(first):
        with torch.npu.memory.use_mem_pool(second):
            inner = allocate(30 * MIB)
        outer = allocate(40 * MIB)

        def again():
            with torch.npu.memory.use_mem_pool(first):
                pass

        error = caught(again)
    for pool in (first, second):
        sizes.append(sorted(s["total_size"] for s in pool.snapshot()))
    return {"sizes": sizes, "error": error, "kept": inner.nbytes + outer.nbytes}


def too_large():
    """Running out of memory inside a pool says so like outside."""
    pool = torch.npu.memory.MemPool()
    with torch.npu.memory.use_mem_pool(pool):
        keep = allocate(100 * MIB)
        error = caught(allocate, 2 * GIB)
    return {"error": error, "kept": keep.nbytes, **pick(stats(), *NAMES)}
