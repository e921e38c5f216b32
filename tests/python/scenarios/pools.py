"""Memory pools, graphs, snapshots, history."""

import torch

from scenarios.common import MIB, allocate, both_stats, pick, stats

NAMES = [
    "allocated_bytes.all.current",
    "reserved_bytes.all.current",
    "segment.all.current",
    "num_device_alloc",
    "num_device_free",
]


def layout(snapshot):
    """Segments as sizes and states; addresses differ from run to run."""
    segments = []
    for segment in sorted(snapshot, key=lambda one: one["address"]):
        blocks = [[block["size"], block["state"]] for block in segment["blocks"]]
        words = ["device", "total_size", "allocated_size", "active_size", "segment_type"]
        segments.append({word: segment[word] for word in words} | {"blocks": blocks})
    return segments


def snapshot():
    """Every segment and block of a device that is partly in use."""
    keep = [allocate(size) for size in (700, 900, 3 * MIB, 5 * MIB, 40 * MIB)]
    del keep[3], keep[0]
    return {"segments": layout(torch.npu.memory_snapshot()), "kept": len(keep)}


def history():
    """What was recorded, in order."""
    torch.npu.memory._record_memory_history(max_entries=1000)
    keep = allocate(3 * MIB)
    allocate(50 * MIB)
    torch.npu.empty_cache()
    del keep
    traces = torch.npu.memory._snapshot()["device_traces"][0]
    torch.npu.memory._record_memory_history(enabled=None)
    return [[entry["action"], entry["size"]] for entry in traces]


def pool():
    """A pool's memory is its own until the pool is gone."""
    stages = []
    mine = torch.npu.memory.MemPool()
    with torch.npu.memory.use_mem_pool(mine):
        inside = allocate(30 * MIB)
    address = inside.data_ptr()
    stages.append(pick(stats(), *NAMES))
    del inside
    outside = allocate(30 * MIB)
    stages.append(pick(stats(), *NAMES) | {"shared": outside.data_ptr() == address})
    with torch.npu.memory.use_mem_pool(mine):
        again = allocate(30 * MIB)
    stages.append(pick(stats(), *NAMES) | {"reused": again.data_ptr() == address})
    del again, mine
    torch.npu.empty_cache()
    stages.append(pick(stats(), *NAMES))
    return stages


def graph():
    """A captured graph keeps the memory its kernels use."""
    inputs = torch.ones(1000, 1000, device="npu")
    torch.npu.synchronize()
    captured = torch.npu.NPUGraph()
    with torch.npu.graph(captured):
        result = (inputs * 2).relu()
    stages = [both_stats()]
    captured.replay()
    torch.npu.synchronize()
    del result
    stages.append(both_stats())
    captured.reset()
    del captured
    torch.npu.empty_cache()
    stages.append(both_stats())
    return stages


def used_by_a_stream():
    """Segments, blocks and history of a stream of its own, with a freed block that the default stream still uses."""
    torch.npu.memory._record_memory_history(max_entries=1000)
    side, default = torch.npu.Stream(), torch.npu.current_stream()
    keep = allocate(700)
    with torch.npu.stream(side):
        keep = [keep, allocate(3 * MIB + 1), allocate(5 * MIB + 1)]
    torch.empty(8, device="npu").fill_(1)
    default.query()
    keep[1].record_stream(default)
    del keep[1]
    taken = torch.npu.memory._snapshot()
    torch.npu.memory._record_memory_history(enabled=None)

    def where(one):
        return {side.npu_stream: "side", default.npu_stream: "default"}.get(one["stream"])

    segments = sorted(taken["segments"], key=lambda one: one["address"])
    words = ["total_size", "allocated_size", "active_size", "requested_size"]
    return {
        "segments": [{word: one.get(word) for word in words} | {"stream": where(one)} for one in segments],
        # Stock leaves a part of what was asked for in a rest that was cut off.
        "blocks": [[b["size"], b["state"] != "inactive" and b["requested_size"], b["state"]]
                   for one in segments for b in one["blocks"]],
        "history": [[e["action"], e["size"], where(e)] for e in taken["device_traces"][0]],
        "kept": len(keep),
    }
