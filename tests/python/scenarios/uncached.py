"""Without a cache: every tensor's memory is the driver's own and goes back at once."""

import torch

from scenarios.common import KIB, MIB, allocate, both_stats, pick, stats
from scenarios.probe import Probe, refused
from scenarios.raw_pools import MINE

NAMES = ["allocated_bytes.all.current", "reserved_bytes.all.current", "segment.all.current"]


def taken_since(free):
    return free - torch.npu.mem_get_info()[0]


def tensors():
    """Tensors come and go, and what is left after each step."""
    free = torch.npu.mem_get_info()[0]
    stages = []
    first = allocate(3 * MIB)
    stages.append(free - torch.npu.mem_get_info()[0])
    second = allocate(700)
    stages.append(free - torch.npu.mem_get_info()[0])
    first.fill_(1)
    del first, second
    stages.append(free - torch.npu.mem_get_info()[0])
    side = torch.npu.Stream()
    third = allocate(30 * MIB)
    third.record_stream(side)
    del third
    torch.npu.empty_cache()
    stages.append(free - torch.npu.mem_get_info()[0])
    return {"stages": stages, **both_stats()}


def emptied():
    """Whether a stream has work before and after `empty_cache`."""
    stream = torch.npu.Stream()
    block = allocate(100 * MIB)
    with torch.npu.stream(stream):
        for _ in range(30):
            block.add_(1)
    busy = not stream.query()
    torch.npu.empty_cache()
    return [busy, not stream.query()]


def padded():
    """Bytes that a tensor of whole pages takes, and the kernels' room behind it."""
    torch.npu.init()
    free = torch.npu.mem_get_info()[0]
    tensor = allocate(4 * MIB)
    return [taken_since(free), tensor.nbytes]


def aligned():
    """A block whose data are aligned further: as any other it is the driver's own, also when it goes."""
    probe = Probe()
    free = torch.npu.mem_get_info()[0]
    rows = []
    for size, kib in ((1000, 64), (3 * MIB, 2048)):
        block = probe.allocate_with_aligned(size, kib)
        data, context, device, raw = probe.block(block)
        aligned = context <= data < context + kib * KIB and data % (kib * KIB) == 0
        rows.append([aligned, device, raw, taken_since(free), pick(stats(), *NAMES)])
        error = refused(probe.free, block)
        rows.append([error, taken_since(free), pick(stats(), *NAMES)])
    return rows


def raw_deleter():
    """The deleter for memory that the allocator gives out now."""
    probe = Probe()
    free = torch.npu.mem_get_info()[0]
    block = probe.allocate(3 * MIB)
    rows = [probe.block(block)[3], taken_since(free) >= 3 * MIB]
    probe.free(block)
    return [*rows, taken_since(free)]


def raw_deleter_captured():
    """The deleter for memory that a graph's capture gets."""
    probe = Probe()
    inputs = torch.ones(8, device="npu")
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        inputs.add_(1)
        block = probe.allocate(3 * MIB)
        raw = probe.block(block)[3]
    probe.free(block)
    graph.reset()
    return raw


def captured():
    """What a graph's kernels use comes from the cache, in which it stays."""
    inputs = torch.ones(1000, 1000, device="npu")
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        result = (inputs * 2).relu()
    stages = [both_stats()]
    graph.replay()
    torch.npu.synchronize()
    del result
    stages.append(pick(stats(), *NAMES))
    graph.reset()
    stages.append(pick(stats(), *NAMES))
    return stages


def released_pools():
    """What a pool has cached goes back as its last user lets it go; while a graph is captured, later."""
    probe = Probe()
    side = torch.npu.Stream()
    tensor = torch.ones(8, device="npu")
    torch.npu.synchronize()
    stages = []

    def cached():
        probe.pool_begin(0, *MINE, 0)
        address = probe.raw_alloc(30 * MIB)
        probe.pool_end(0, *MINE)
        probe.raw_delete(address)
        stages.append(pick(stats(), *NAMES))

    def released():
        error = refused(probe.pool_release, 0, *MINE)
        stages.append([error, pick(stats(), *NAMES)])

    cached()
    released()
    cached()
    graph = torch.npu.NPUGraph()
    with torch.npu.stream(side):
        graph.capture_begin(capture_error_mode="relaxed")
        tensor.add_(1)
        released()
        graph.capture_end()
    graph.reset()
    stages.append(pick(stats(), *NAMES))
    return stages
