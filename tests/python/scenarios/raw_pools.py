"""Private pools, captures and checkpoints by their virtual methods, with wrong calls."""

import re
import threading
import time

import torch
import torch_npu

from scenarios.common import MIB, both_stats, caught, pick, stats
from scenarios.probe import Probe, refused
from scenarios.virtual import calls

C = torch_npu._C
NAMES = ["allocated_bytes.all.current", "reserved_bytes.all.current", "segment.all.current"]
#: A pool id that nobody else makes.
MINE, OTHER = (77, 1), (77, 2)


def unchanged(call, *arguments):
    """The refusal of a call, and whether it left the statistics as they were."""
    before = stats()
    error = refused(call, *arguments)
    return {"error": error, "unchanged": stats() == before}


def routes():
    """Requests go to a pool by stream; counts of uses; release."""
    probe = Probe()
    side = torch.npu.Stream()
    counts = []
    probe.pool_create(0, *MINE)
    counts.append(probe.pool_use_count(0, *MINE))
    probe.pool_begin(0, *MINE, side.npu_stream)
    counts.append(probe.pool_use_count(0, *MINE))
    inside = probe.raw_alloc_with_stream(30 * MIB, side.npu_stream)
    outside = probe.raw_alloc(30 * MIB)
    live = [
        probe.pool_live(0, *MINE, [inside]),
        probe.pool_live(0, *MINE, []),
        probe.pool_live(0, *MINE, [inside, outside]),
    ]
    probe.pool_end(0, *MINE)
    stages = [both_stats()]
    probe.raw_delete(inside)
    probe.raw_delete(outside)
    probe.empty_cache(1)
    stages.append(pick(stats(), *NAMES))
    probe.pool_release(0, *MINE)
    probe.pool_release(0, *MINE)
    probe.empty_cache(1)
    stages.append(pick(stats(), *NAMES))
    return {"counts": counts, "live": live, "stages": stages}


def routes_meanwhile(rounds):
    """One thread's scope ends while another's begins: the requests of the latter all go to its pool. How many
    did."""
    probe = Probe()
    streams = [torch.npu.Stream() for _ in range(2)]
    for pool in (MINE, OTHER):
        probe.pool_create(0, *pool)
    # Fails rather than waits for good where a thread has failed.
    together = threading.Barrier(2, timeout=60)

    def ends():
        torch.npu.set_device(0)
        for _ in range(rounds):
            probe.pool_begin(0, *MINE, streams[0].npu_stream)
            together.wait()
            probe.pool_end(0, *MINE)
            together.wait()

    thread = threading.Thread(target=ends)
    thread.start()
    inside = 0
    for _ in range(rounds):
        together.wait()
        probe.pool_begin(0, *OTHER, streams[1].npu_stream)
        # What the end has begun to do is done.
        time.sleep(0.001)
        address = probe.raw_alloc_with_stream(30 * MIB, streams[1].npu_stream)
        inside += probe.pool_live(0, *OTHER, [address])
        probe.raw_delete(address)
        probe.pool_end(0, *OTHER)
        together.wait()
    thread.join()
    return inside


def emptied_pool():
    """emptyCache of one pool leaves the others' memory, also where one of the pool's two numbers is 0, as torch has
    them."""
    probe = Probe()
    halves = (0, 78), (78, 0)
    for pool in (MINE, *halves):
        probe.pool_begin(0, *pool, 0)
        probe.raw_delete(probe.raw_alloc(30 * MIB))
        probe.pool_end(0, *pool)
    probe.raw_delete(probe.raw_alloc(30 * MIB))
    stages = [pick(stats(), *NAMES)]
    for pool in (MINE, *halves, (0, 0)):
        probe.empty_pool(*pool)
        stages.append(pick(stats(), *NAMES))
    for pool in (MINE, *halves):
        probe.pool_release(0, *pool)
        probe.empty_pool(*pool)
        stages.append(pick(stats(), *NAMES))
    return stages


def never_split():
    """A pool with no_split gives whole segments out."""
    probe = Probe()
    probe.pool_create(0, *MINE)
    probe.pool_no_split(0, *MINE)
    probe.pool_begin(0, *MINE, 0)
    blocks = [probe.raw_alloc(size) for size in (700, 3 * MIB, 30 * MIB)]
    probe.raw_delete(blocks[2])
    again = probe.raw_alloc(25 * MIB)
    probe.pool_end(0, *MINE)
    return {"again": again == blocks[2], **both_stats()}


def used_on_oom(use):
    """With use_on_oom a pool's idle memory serves requests that find no other."""
    probe = Probe()
    probe.pool_create(0, *MINE)
    probe.pool_use_on_oom(0, *MINE, use)
    probe.pool_begin(0, *MINE, 0)
    address = probe.raw_alloc(700 * MIB)
    probe.pool_end(0, *MINE)
    probe.raw_delete(address)
    try:
        served = probe.raw_alloc(600 * MIB) == address
    except Exception as error:
        served = error.args[0]
    return {"served": served, **pick(stats(), *NAMES, "num_ooms")}


def captures():
    """Marks of captures, and blocks freed meanwhile."""
    probe = Probe()
    seen = [probe.captures_underway(0)]
    probe.capture_begin(0)
    probe.capture_begin(0)
    seen.append(probe.captures_underway(0))
    probe.capture_end(0)
    seen.append(probe.captures_underway(0))
    side = torch.npu.Stream()
    block = probe.allocate(30 * MIB)
    address = probe.data(block)
    probe.record_stream(block, 0, side.stream_id)
    probe.free(block)
    during = probe.allocate(30 * MIB)
    # No event can be recorded during a capture: the block waits for its end.
    reused = [probe.data(during) == address]
    probe.capture_end(0)
    seen.append(probe.captures_underway(0))
    after = probe.allocate(30 * MIB)
    torch.npu.synchronize()
    last = probe.allocate(30 * MIB)
    reused += [probe.data(after) == address, probe.data(last) == address]
    return {"underway": seen, "reused": reused, **pick(stats(), *NAMES)}


def wrong_ids():
    """Pools that were never made or are gone, and calls out of order."""
    probe = Probe()
    keep = probe.allocate(3 * MIB)
    rows = {
        "release of none": unchanged(probe.pool_release, 0, *MINE),
        "use count of none": unchanged(probe.pool_use_count, 0, *MINE),
        "live of none": unchanged(probe.pool_live, 0, *MINE, []),
        "end without begin": unchanged(probe.pool_end, 0, *MINE),
        "checkpoint of none": unchanged(probe.checkpoint, 0, *MINE),
        "empty of none": unchanged(probe.empty_pool, *MINE),
        "device": unchanged(probe.pool_create, 99, *MINE),
        "begin on device": unchanged(probe.pool_begin, 99, *MINE, 0),
        "end on device": unchanged(probe.pool_end, 99, *MINE),
        "release on device": unchanged(probe.pool_release, 99, *MINE),
        "underway on device": unchanged(probe.captures_underway, 99),
        "mark on device": unchanged(probe.capture_begin, 99),
        "checkpoint on device": unchanged(probe.checkpoint, 99, *MINE),
        "count on device": unchanged(probe.pool_use_count, 99, *MINE),
        "on oom on device": unchanged(probe.pool_use_on_oom, 99, *MINE, 1),
        "no split on device": unchanged(probe.pool_no_split, 99, *MINE),
        "live on device": unchanged(probe.pool_live, 99, *MINE, []),
    }
    probe.pool_begin(0, *MINE, 0)
    rows["begin twice"] = unchanged(probe.pool_begin, 0, *MINE, 0)
    probe.pool_end(0, *MINE)
    rows["end twice"] = unchanged(probe.pool_end, 0, *MINE)
    probe.pool_release(0, *MINE)
    rows["release twice"] = unchanged(probe.pool_release, 0, *MINE)
    # Everything is as before: the pool can be made anew and the rest works.
    probe.pool_create(0, *OTHER)
    probe.pool_release(0, *OTHER)
    probe.free(keep)
    probe.empty_cache(1)
    return {"rows": rows, "end": pick(stats(), *NAMES)}


def capture_end_alone():
    """The end of a capture that nobody began."""
    probe = Probe()
    row = unchanged(probe.capture_end, 0)
    return row | {"underway": probe.captures_underway(0)}


def checkpoint():
    """A pool goes back to a state and forth to another: what is freed, what lives again."""
    probe = Probe()
    probe.pool_begin(0, *MINE, 0)
    stages = []
    first = [probe.allocate(size) for size in (700, 3 * MIB, 30 * MIB)]
    early = probe.checkpoint(0, *MINE)
    where = [probe.data(block) for block in first]
    second = [probe.allocate(size) for size in (900, 4 * MIB)]
    late = probe.checkpoint(0, *MINE)
    probe.pool_end(0, *MINE)
    stages.append(pick(stats(), *NAMES))
    for block in [*first, *second]:
        probe.free(block)
    stages.append(pick(stats(), *NAMES))
    freed, made = probe.restore(0, late)
    stages.append([freed, len(made), pick(stats(), *NAMES)])
    live = [probe.data(block) for block in made]
    rows = {"late has early": sorted(set(where) & set(live)) == sorted(where),
            "live": probe.pool_live(0, *MINE, live)}
    freed, again = probe.restore(0, early)
    stages.append([freed, len(again), pick(stats(), *NAMES)])
    rows["early"] = sorted(probe.data(block) for block in again) == sorted(where)
    rows["live early"] = probe.pool_live(0, *MINE, where)
    return {"stages": stages, **rows}


def restored_figures():
    """What a return to a checkpoint adds to the statistics, the history and the snapshot: of two blocks there, one was freed."""
    probe = Probe()
    probe.pool_begin(0, *MINE, 0)
    kept, gone = probe.allocate(3 * MIB + 1), probe.allocate(5 * MIB + 1)
    state = probe.checkpoint(0, *MINE)
    probe.pool_end(0, *MINE)
    probe.free(gone)
    torch.npu.reset_accumulated_memory_stats()
    torch.npu.reset_peak_memory_stats()
    torch.npu.memory._record_memory_history(context=None)
    freed, made = probe.restore(0, state)
    snapshot = torch.npu.memory._snapshot()
    names = [f"{name}.all.{what}" for name in ("allocation", "allocated_bytes", "requested_bytes")
             for what in ("allocated", "freed", "current", "peak")]
    blocks = [[b["requested_size"], b["state"]] for s in snapshot["segments"] for b in s["blocks"]]
    return {"counts": [freed, len(made)], "stats": pick(stats(), *names), "blocks": blocks,
            "history": [[e["action"], e["size"]] for e in snapshot["device_traces"][0]]}


def wrong_checkpoints():
    """States of another allocator, another pool's, a pool that is gone."""
    probe = Probe()
    rows = {"foreign": unchanged(probe.restore, 0, probe.checkpoint_foreign())}
    probe.pool_begin(0, *MINE, 0)
    block = probe.allocate(3 * MIB)
    probe.pool_end(0, *MINE)
    state = probe.checkpoint(0, *MINE)
    rows["device"] = unchanged(probe.restore, 99, state)
    probe.free(block)
    probe.pool_release(0, *MINE)
    probe.empty_cache(1)
    rows["gone"] = unchanged(probe.restore, 0, state)
    rows["checkpoint of gone"] = unchanged(probe.checkpoint, 0, *MINE)
    return {"rows": rows, "end": pick(stats(), *NAMES)}


def wrong_states():
    """torch_npu's own calls for graph trees: pools that were released, are gone, or were never made. What each raises, up
    to the pool's name, or that it raises nothing."""
    torch.npu.init()
    first, other = torch.npu.current_device(), 1

    def outcome(call, *arguments):
        error = caught(call, *arguments)
        if error is None:
            return None
        code = re.search(r"ERR\d+", error["message"])
        return [error["types"], error["line"].split(" (")[0], code and code[0]]

    C._npu_beginAllocateToPool(first, MINE)
    block = torch.empty(3 * MIB, dtype=torch.uint8, device="npu")
    C._npu_endAllocateToPool(first, MINE)
    state = C._npu_getCheckpointState(first, MINE)
    torch.empty(1, device=f"npu:{other}")
    rows = {
        "live of none": outcome(C._npu_checkPoolLiveAllocations, first, OTHER, set()),
        "state of none": outcome(C._npu_getCheckpointState, first, OTHER),
        "set on another device": outcome(C._npu_setCheckpointPoolState, other, state, [], []),
    }
    C._npu_releasePool(first, MINE)
    rows["state of a released pool"] = outcome(C._npu_getCheckpointState, first, MINE)
    rows["set in a released pool"] = outcome(C._npu_setCheckpointPoolState, first, state, [], [])
    del block
    torch.npu.empty_cache()
    rows["state of a pool that is gone"] = outcome(C._npu_getCheckpointState, first, MINE)
    rows["set in a pool that is gone"] = outcome(C._npu_setCheckpointPoolState, first, state, [], [])
    return rows


def graph_tree():
    """torch_npu's own calls for graph trees: a state, storages, and back."""
    pool = torch.npu.graph_pool_handle()
    device = torch.npu.current_device()
    side = torch.npu.Stream()
    stages = []
    torch.npu.synchronize()
    with torch.npu.stream(side):
        C._npu_beginAllocateCurrentStreamToPool(device, pool)
        first = torch.empty(3 * MIB, dtype=torch.uint8, device="npu")
        state = C._npu_getCheckpointState(device, pool)
        second = torch.empty(5 * MIB, dtype=torch.uint8, device="npu")
        C._npu_endAllocateToPool(device, pool)
    stages.append(pick(stats(), *NAMES))
    live = {first.data_ptr(), second.data_ptr()}
    stages.append(C._npu_checkPoolLiveAllocations(device, pool, live))
    stale = second.untyped_storage()._cdata
    C._npu_setCheckpointPoolState(device, state, [stale], [])
    stages.append(pick(stats(), *NAMES))
    stages.append(C._npu_checkPoolLiveAllocations(device, pool, {first.data_ptr()}))
    stages.append(caught(C._npu_setCheckpointPoolState, device, state, [], []))
    del first, second
    C._npu_releasePool(device, pool)
    torch.npu.empty_cache()
    stages.append(pick(stats(), *NAMES))
    return stages


def routes_of_one_device():
    """A scope for every stream of device 0: what another device's requests get meanwhile."""
    probe = Probe()
    torch.empty(1, device="npu:1")
    before = pick(stats(1), *NAMES)
    for device in (0, 1):
        probe.pool_create(device, *MINE)
    probe.pool_begin(0, *MINE, 0)
    probe.pool_release(0, *MINE)
    here = probe.raw_alloc(30 * MIB)
    with torch.npu.device(1):
        there = probe.raw_alloc(30 * MIB)
    rows = [probe.pool_live(0, *MINE, [here]), probe.pool_live(1, *MINE, [])]
    pools = sorted([s["device"], tuple(s["segment_pool_id"]) == MINE] for s in torch.npu.memory_snapshot())
    probe.pool_end(0, *MINE)
    probe.raw_delete(here)
    probe.raw_delete(there)
    for device in (0, 1):
        probe.pool_release(device, *MINE)
    probe.empty_cache(1)
    return {"live": rows, "pools": pools, "before": before, "after": pick(stats(1), *NAMES)}


def captured_elsewhere():
    """A stream is captured while another one is the thread's own, and a block is freed that the captured one used
    before: events recorded meanwhile, and whether the block serves before the capture's end and after it."""
    probe = Probe()
    side = torch.npu.Stream()
    block = probe.allocate(30 * MIB)
    address = probe.data(block)
    probe.record_stream(block, 0, side.stream_id)
    tensor = torch.ones(8, device="npu")
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.stream(side):
        graph.capture_begin(capture_error_mode="relaxed")
        tensor.add_(1)
    before = calls("aclrtRecordEvent")
    probe.free(block)
    during = probe.allocate(30 * MIB)
    # What waits in the task queue has been called then.
    torch.npu.current_stream().query()
    events = calls("aclrtRecordEvent") - before
    with torch.npu.stream(side):
        graph.capture_end()
    after = probe.allocate(30 * MIB)
    torch.npu.synchronize()
    last = probe.allocate(30 * MIB)
    reused = [probe.data(one) == address for one in (during, after, last)]
    graph.reset()
    return {"events": events, "reused": reused, **pick(stats(), *NAMES)}
