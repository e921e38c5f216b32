"""The allocator's virtual methods for memory and streams, through the probe."""

import ctypes

import torch

from scenarios.common import GIB, KIB, MIB, both_stats, pick, stats
from scenarios.probe import Probe, refused

NAMES = [
    "allocated_bytes.all.current",
    "active_bytes.all.current",
    "requested_bytes.all.current",
    "reserved_bytes.all.current",
]


def pending(stream, address, size=MIB):
    """Puts a kernel on a stream, so that something is pending there."""
    with torch.npu.stream(stream):
        torch.empty(8, device="npu").fill_(1)
        torch.npu.current_stream().query()


def identity():
    """Name, state, and what a pointer of the allocator looks like."""
    probe = Probe()
    block = probe.allocate(3 * MIB)
    data, context, device, raw = probe.block(block)
    empty = probe.allocate(0)
    result = {
        "name": probe.name(),
        "initialized": probe.initialized(),
        "context is data": context == data,
        "device": device,
        "raw deleter": raw,
        "empty": probe.block(empty),
        "memory info": probe.memory_info(0),
    }
    for one in (block, empty):
        probe.free(one)
    return result | both_stats()


def aligned():
    """Blocks whose data are aligned further than the allocator does by itself."""
    probe = Probe()
    rows = []
    for size, kib in [(1000, 1), (1000, 64), (3 * MIB, 16), (3 * MIB, 2048), (40 * MIB, 4)]:
        block = probe.allocate_with_aligned(size, kib)
        data, context, _, raw = probe.block(block)
        rows.append({
            "aligned": data % (kib * KIB) == 0,
            "inside": context <= data < context + kib * KIB,
            "raw": raw,
            **pick(stats(), *NAMES),
        })
        probe.free(block)
    empty = probe.allocate_with_aligned(0, 64)
    return {
        "rows": rows,
        "empty": probe.data(empty),
        "too large": refused(probe.allocate_with_aligned, 1 << 60, 1),
        "end": pick(stats(), *NAMES),
    }


def raw():
    """Memory by address, made and freed by each of the methods for it."""
    probe = Probe()
    side = torch.npu.Stream()
    first = probe.raw_alloc(30 * MIB)
    probe.raw_delete(first)
    second = probe.raw_alloc_with_stream(30 * MIB, side.npu_stream)
    third = probe.raw_alloc(30 * MIB)
    stages = [pick(stats(), *NAMES)]
    probe.raw_deleter(second)
    probe.raw_deleter(third)
    probe.raw_deleter(0)
    stages.append(pick(stats(), *NAMES))
    return {
        "other stream": second == first,
        "own stream": third == first,
        "nothing": [probe.raw_alloc(0), probe.raw_alloc_with_stream(0, side.npu_stream)],
        "stages": stages,
        "unknown": refused(probe.raw_delete, 0xDEAD0000),
    }


def copies():
    """copy_data copies between device addresses."""
    probe = Probe()
    source = torch.arange(1000, dtype=torch.int32).npu()
    target = torch.zeros(1000, dtype=torch.int32).npu()
    torch.npu.synchronize()
    probe.copy_data(target.data_ptr(), source.data_ptr(), 4000)
    return target.cpu().tolist() == list(range(1000))


def copied_in_vain():
    """copy_data where the runtime refuses."""
    probe = Probe()
    address = probe.raw_alloc(3 * MIB)
    set_faults = ctypes.CDLL("libascendcl.so").cannSimSetFaults
    assert set_faults(b"aclrtMemcpy:every=1,code=507899") == 0
    error = refused(probe.copy_data, address, address + MIB, 4000)
    assert set_faults(b"") == 0
    return error


def emptied_in_vain(check):
    """The cache is emptied where the driver takes nothing back, and where it does again."""
    probe = Probe()
    probe.free(probe.allocate(40 * MIB))
    set_faults = ctypes.CDLL("libascendcl.so").cannSimSetFaults
    assert set_faults(b"aclrtFree:every=1,code=507899") == 0
    error = refused(probe.empty_cache, check)
    assert set_faults(b"") == 0
    probe.empty_cache(1)
    return {"error": error, **pick(stats(), *NAMES)}


def base_allocations():
    """The driver's allocation around a block."""
    probe = Probe()
    blocks = [probe.raw_alloc(size) for size in (2 * MIB, 3 * MIB, 700, 40 * MIB)]
    bases = [probe.base_allocation(address) for address in blocks]
    return {
        "offsets": [address - base for address, (base, _) in zip(blocks, bases)],
        "sizes": [size for _, size in bases],
        "size not asked for": [probe.base_address(address) for address in blocks] == [base for base, _ in bases],
        "one segment": bases[0] == bases[1],
        "unknown": refused(probe.base_allocation, 0xDEAD0000),
        "inside": refused(probe.base_allocation, blocks[0] + 512),
    }


def cache_info():
    """Cached memory in all and the largest free block; added to what is passed in."""
    probe = Probe()
    blocks = [probe.allocate(size) for size in (700, 3 * MIB, 40 * MIB, 5 * MIB)]
    rows = [probe.cache_info(0)]
    for block in blocks:
        probe.free(block)
        rows.append(probe.cache_info(0))
    probe.empty_cache(1)
    rows.append(probe.cache_info(0))
    return rows


def cache_info_onto():
    """The same on top of what the caller has of others."""
    probe = Probe()
    probe.free(probe.allocate(40 * MIB))
    return [probe.cache_info_onto(0, total, largest) for total, largest in ((0, 0), (1000, 1000), (5, GIB))]


def recorded_streams():
    """recordStream through both classes, and eraseStream."""
    probe = Probe()
    side = torch.npu.Stream()
    rows = []
    for way in ("record_stream", "record_c10_stream"):
        block = probe.allocate(30 * MIB)
        address = probe.data(block)
        pending(side, address)
        getattr(probe, way)(block, 0, side.stream_id)
        probe.free(block)
        again = probe.allocate(30 * MIB)
        rows.append(probe.data(again) == address)
        side.synchronize()
        probe.free(again)
    block = probe.allocate(30 * MIB)
    address = probe.data(block)
    pending(side, address)
    probe.record_stream(block, 0, side.stream_id)
    probe.erase_stream(block, 0, side.stream_id)
    probe.free(block)
    again = probe.allocate(30 * MIB)
    rows.append(probe.data(again) == address)
    foreign = probe.foreign()
    return {
        "reused": rows,
        "of the host": refused(probe.record_c10_stream, again, 1, 0),
        "foreign": [
            refused(probe.record_stream, foreign, 0, side.stream_id),
            refused(probe.erase_stream, foreign, 0, side.stream_id),
            probe.block_ptr(foreign),
        ],
    }


def aligned_elsewhere(probe):
    """A block whose data do not begin where its memory does."""
    before = probe.allocate(3 * MIB + 512)
    block = probe.allocate_with_aligned(3 * MIB, 64)
    probe.free(before)
    data, context, _, _ = probe.block(block)
    assert data != context
    return block, context


def aligned_uses():
    """Uses of a block whose data do not begin where its memory does: recorded, taken back, of a collective."""
    probe = Probe()
    side = torch.npu.Stream()
    rows = {}

    def use(record):
        block, context = aligned_elsewhere(probe)
        pending(side, context)
        record(block)
        probe.free(block)
        again, _ = aligned_elsewhere(probe)
        reused = probe.block(again)[1] == context
        side.synchronize()
        probe.free(again)
        probe.empty_cache(1)
        return reused

    def collective(block):
        handle = probe.block_ptr(block)
        probe.record_stream(block, 0, side.stream_id)
        probe.record_work(handle, 1111)
        probe.erase_work(handle, 0, side.stream_id, 1111)

    def taken_back(block):
        probe.record_stream(block, 0, side.stream_id)
        probe.erase_stream(block, 0, side.stream_id)

    rows["none"] = use(lambda block: None)
    rows["recorded"] = use(lambda block: probe.record_stream(block, 0, side.stream_id))
    rows["recorded by torch"] = use(lambda block: probe.record_c10_stream(block, 0, side.stream_id))
    rows["taken back"] = use(taken_back)
    rows["collective"] = use(collective)
    return rows


def works():
    """A collective gives its block back before the event of its use completes."""
    probe = Probe()
    side, other = torch.npu.Stream(), torch.npu.Stream()
    rows = {}

    def use(erase):
        block = probe.allocate(30 * MIB)
        address, handle = probe.data(block), probe.block_ptr(block)
        pending(side, address)
        probe.record_stream(block, 0, side.stream_id)
        probe.record_work(handle, 1111)
        error = erase(handle)
        probe.free(block)
        again = probe.allocate(30 * MIB)
        reused = probe.data(again) == address
        probe.free(again)
        side.synchronize()
        torch.npu.synchronize()
        probe.clean_event()
        probe.empty_cache(1)
        return [reused, error]

    def erase(handle):
        return refused(probe.erase_work, handle, 0, side.stream_id, 1111)

    def another(handle):
        return refused(probe.erase_work, handle, 0, side.stream_id, 2222)

    def later(handle):
        # A later collective used the block: the first may not give it back.
        probe.record_work(handle, 3333)
        return refused(probe.erase_work, handle, 0, side.stream_id, 1111)

    def at_the_second_time(handle):
        # On another stream it is refused silently; that is not the end of it.
        with torch.npu.stream(other):
            first = erase(handle)
        return first or erase(handle)

    rows["given back"] = use(erase)
    rows["second time"] = use(at_the_second_time)
    rows["another's work"] = use(another)
    rows["used again"] = use(later)
    rows["null block"] = refused(probe.erase_work, 0, 0, side.stream_id, 1)
    block = probe.allocate(30 * MIB)
    rows["null work"] = refused(probe.erase_work, probe.block_ptr(block), 0, side.stream_id, 0)
    rows["nothing"] = probe.block_ptr(probe.allocate(0))
    return rows


def clean_events():
    """cleanEvent forgets what is pending: the blocks are free at once."""
    probe = Probe()
    side = torch.npu.Stream()
    block = probe.allocate(30 * MIB)
    address = probe.data(block)
    pending(side, address)
    probe.record_stream(block, 0, side.stream_id)
    probe.free(block)
    stages = [pick(stats(), *NAMES)]
    probe.clean_event()
    stages.append(pick(stats(), *NAMES))
    again = probe.allocate(30 * MIB)
    return {"stages": stages, "reused": probe.data(again) == address}


def emptied(way):
    """Each method that gives cached memory back."""
    probe = Probe()
    keep = probe.allocate(3 * MIB)
    for size in (700, 40 * MIB):
        probe.free(probe.allocate(size))
    before = pick(stats(), *NAMES, "num_device_free")
    calls = {
        "pool id 0": lambda: probe.empty_pool(0, 0),
        "checked": lambda: probe.empty_cache(1),
        "unchecked": lambda: probe.empty_cache(0),
        "impl": lambda: probe.empty_cache_impl(1, 1),
        "device": lambda: probe.free_device_cached_memory(0),
        "virtual": lambda: probe.empty_virt_addr_cache(1),
    }
    error = refused(calls[way])
    after = pick(stats(), *NAMES, "num_device_free")
    probe.free(keep)
    return {"error": error, "before": before, "after": after}


def misuse():
    """Calls that make the stock allocator crash or read what is not there."""
    probe = Probe()
    keep = probe.allocate(3 * MIB)
    calls = {
        "work of no block": (probe.record_work, 0, 1),
        "work of an unknown block": (probe.erase_work, 0x1234, 0, 0, 1),
        "alignment too large": (probe.allocate_with_aligned, 1 << 30, 1 << 50),
        "cache info": (probe.cache_info, 99),
        "cached memory": (probe.free_device_cached_memory, 99),
        "negative device": (probe.cache_info, -1),
    }
    rows = {}
    for name, call in calls.items():
        before = stats()
        rows[name] = {"error": refused(*call), "unchanged": stats() == before}
    unaligned = probe.allocate_with_aligned(1000, 0)
    data, context, _, _ = probe.block(unaligned)
    return {"rows": rows, "no alignment": data == context, "kept": probe.data(keep) != 0}
