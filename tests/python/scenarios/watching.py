"""Who is told what the allocator does: observers, trackers, callbacks, history."""

import ctypes
import time

import torch
import torch_npu

from scenarios.common import GIB, MIB, allocate, caught, pick, stats
from scenarios.probe import Probe, refused
from scenarios.raw_pools import MINE

C = torch_npu._C
NAMES = ["allocated_bytes.all.current", "reserved_bytes.all.current", "num_ooms",
         "num_alloc_retries", "num_oom_rejections"]


def told_of_oom(part=1.0):
    """Observers of running out of memory, attached from C++ and from Python."""
    probe = Probe()
    torch.npu.set_per_process_memory_fraction(part)
    seen = []
    C._npu_attach_out_of_memory_observer(lambda *numbers: seen.append(list(numbers)))
    probe.observe_oom()
    allocate(100 * MIB)
    keep = allocate(200 * MIB)
    error = caught(allocate, 2 * GIB)
    return {"python": seen, "probe": probe.log(), "error": error, "kept": keep.nbytes,
            **pick(stats(), *NAMES)}


def observer_allocates():
    """An observer uses the allocator."""
    probe = Probe()
    probe.observe_oom_allocating(MIB)
    error = caught(allocate, 2 * GIB)
    return {"log": probe.log(), "error": error, **pick(stats(), *NAMES)}


def told(probe, lines):
    """The log, once it has that many lines: observers of rejections run on threads of their own."""
    for _ in range(100):
        if len(probe.log()) == lines:
            break
        time.sleep(0.05)
    return probe.log()


def told_of_rejection():
    """Requests above the share that throw_on_npumalloc_oom refuses beforehand, to two observers."""
    probe = Probe()
    probe.observe_rejection()
    probe.observe_rejection()
    torch.npu.memory._set_allocator_settings(
        "throw_on_npumalloc_oom:True,per_process_memory_fraction:0.5"
    )
    keep = allocate(100 * MIB)
    errors = [caught(allocate, size) for size in (600 * MIB, 2 * GIB)]
    return {"log": sorted(told(probe, 4)), "errors": errors, "kept": keep.nbytes,
            **pick(stats(), *NAMES)}


def tracked():
    """What a trace tracker is told: without history, and with it."""
    probe = Probe()
    probe.track()
    keep = allocate(3 * MIB)
    allocate(40 * MIB)
    torch.npu.empty_cache()
    without = probe.log()
    probe.record_history(1, 1, 100, 3)
    pool = torch.npu.memory.MemPool()
    with torch.npu.memory.use_mem_pool(pool):
        inside = allocate(30 * MIB)
    del inside, pool
    side = torch.npu.Stream()
    keep.record_stream(side)
    del keep
    torch.npu.synchronize()
    torch.npu.empty_cache()
    return {"without": without, "all": probe.log()}


def told_at_once():
    """What a tracker has been told by the end of each single call."""
    probe = Probe()
    probe.track()
    rows = []

    def told(name, call, *arguments):
        before = len(probe.log())
        result = call(*arguments)
        rows.append([name, [line[1:] for line in probe.log()[before:]]])
        return result

    block = told("allocate", probe.allocate, 3 * MIB)
    told("free", probe.free, block)
    address = told("raw", probe.raw_alloc, 30 * MIB)
    told("raw free", probe.raw_delete, address)
    told("snapshot", probe.snapshot, 0, 0, 0)
    told("cached memory", probe.free_device_cached_memory, 0)
    probe.pool_begin(0, *MINE, 0)
    block = told("in a pool", probe.allocate, 3 * MIB)
    state = probe.checkpoint(0, *MINE)
    probe.pool_end(0, *MINE)
    told("free in a pool", probe.free, block)
    told("restored", probe.restore, 0, state)
    told("too much", refused, probe.raw_alloc, 2 * GIB)
    told("emptied", probe.empty_cache, 1)
    return rows


def failing_tracker():
    """What a request says that fails while a tracker that is told of it fails, too; one that works afterwards."""
    probe = Probe()
    probe.track_failing()
    error = caught(allocate, 2 * GIB)
    return {"error": error, "log": probe.log(), "then": allocate(3 * MIB).nbytes}


def tracked_early():
    """A tracker attached before the device is used."""
    probe = Probe(init=False)
    probe.track()
    before = probe.initialized()
    allocate(40 * MIB)
    torch.npu.empty_cache()
    return {"before": before, "log": probe.log()}


def callback():
    """A free-memory callback gives back what it holds before the request fails."""
    probe = Probe()
    probe.register_callback()
    block = probe.allocate(700 * MIB)
    address = probe.data(block)
    probe.hoard(block)
    served = probe.raw_alloc(600 * MIB)
    error = refused(probe.raw_alloc, 600 * MIB)
    return {"served": served == address, "log": probe.log(), "error": error,
            **pick(stats(), *NAMES)}


def workspaces():
    """A retry also takes back what torch_npu caches for operators' workspaces."""
    tensor = torch.ones(1000, 1000, device="npu")
    for _ in range(3):
        tensor = tensor @ tensor
    torch.npu.synchronize()
    before = torch.npu.mem_get_info()[0]
    error = caught(allocate, 2 * GIB)
    free = torch.npu.mem_get_info()[0]
    del tensor
    torch.npu.empty_cache()
    return {"before": before, "error": error["types"][0], "grown": free - before,
            "end": torch.npu.mem_get_info()[0], **pick(stats(), *NAMES)}


def large_workspaces():
    """A request that fits only where an operator's workspace was, which is not the allocator's; twice over."""
    assert ctypes.CDLL("libascendcl.so").cannSimSetWorkspace(ctypes.c_uint64(300 * MIB)) == 0
    rows = []
    for _ in range(2):
        free = torch.npu.mem_get_info()[0]
        tensor = torch.ones(1000, 1000, device="npu")
        tensor = tensor @ tensor
        torch.npu.synchronize()
        others = free - torch.npu.mem_get_info()[0] - torch.npu.memory_reserved()
        rows.append([others >= 300 * MIB, allocate(800 * MIB).nbytes])
        del tensor
        torch.npu.empty_cache()
    return {"rows": rows, **pick(stats(), *NAMES)}


def history_levels():
    """Which entries and blocks have a context, by level; a ring of entries."""
    probe = Probe()
    rows = []
    for when in (0, 1, 2, 3):
        probe.record_history(1, 1, 6, when)
        enabled = probe.history_enabled()
        keep = [probe.allocate(700), probe.allocate(3 * MIB)]
        probe.free(probe.allocate(50 * MIB))
        rows.append([when, enabled, list(probe.snapshot(0, 0, 0))])
        for block in keep:
            probe.free(block)
        probe.empty_cache(1)
        rows.append(list(probe.snapshot(0, 0, 0)))
        probe.record_history(0, 0, 6, 0)
        rows.append([probe.history_enabled(), list(probe.snapshot(0, 0, 0))])
    return {"rows": rows, "no recorder": refused(probe.record_history, 1, 0, 10, 3),
            "enabled": probe.history_enabled()}


def frames(entry):
    """Functions of this file in a stack."""
    return [f["name"] for f in entry.get("frames", []) if f["filename"].endswith("watching.py")]


def kinds(entry):
    """Whether a stack has frames of Python and of C++."""
    found = {f["filename"].endswith(".py") for f in entry.get("frames", [])}
    return sorted(found)


def recorded(enabled, context, stacks):
    """_record_memory_history in one mode: entries with their stacks, blocks with theirs."""
    torch.npu.memory._record_memory_history(
        enabled=enabled, context=context, stacks=stacks, max_entries=50
    )
    keep = make()
    let_go(make())
    taken = torch.npu.memory._snapshot()
    entries = [
        [e["action"], e["size"], frames(e), kinds(e), sorted(e)]
        for e in (taken["device_traces"] or [[]])[0]
    ]
    blocks = [
        [b["size"], b["state"], frames(b), kinds(b)]
        for s in sorted(taken["segments"], key=lambda s: s["address"]) for b in s["blocks"]
    ]
    torch.npu.memory._record_memory_history(enabled=None)
    off = allocate(1000)
    last = torch.npu.memory._snapshot()
    return {"entries": entries, "blocks": blocks, "kept": keep.nbytes + off.nbytes,
            "off": [len(last["device_traces"]), len((last["device_traces"] or [[]])[0])],
            "keys": sorted(taken), "segment keys": sorted(taken["segments"][0])}


def make():
    return allocate(3 * MIB)


def let_go(tensor):
    del tensor


def given_back(context):
    """Stacks of what happens to a block after its caller gave it back."""
    torch.npu.memory._record_memory_history(context=context, stacks="python", max_entries=100)
    side = torch.npu.Stream()

    def use():
        tensor = allocate(40 * MIB)
        tensor.record_stream(side)

    def come_back():
        return allocate(1000)

    def empty():
        torch.npu.empty_cache()

    use()
    torch.npu.synchronize()
    kept = come_back()
    empty()
    use()
    empty()
    entries = [[e["action"], e["size"], frames(e)[:2]]
               for e in torch.npu.memory._snapshot()["device_traces"][0]]
    torch.npu.memory._record_memory_history(enabled=None)
    return {"entries": entries, "kept": kept.nbytes}


def bad_modes():
    """Modes that are none."""
    record = torch.npu.memory._record_memory_history
    return {
        "enabled": caught(record, enabled="some"),
        "context": caught(record, context="some"),
        "stacks": caught(record, stacks="some"),
        "entries": caught(record, max_entries=-1),
    }


def told_besides():
    """What others are told where one who was attached before them throws: of a request refused beforehand."""
    probe = Probe()
    probe.observe_rejection_failing()
    probe.observe_rejection()
    torch.npu.memory._set_allocator_settings("throw_on_npumalloc_oom:True,per_process_memory_fraction:0.5")
    error = caught(allocate, 600 * MIB)
    return {"error": error["types"][0], "log": [line[0] for line in told(probe, 2)]}


def tracked_twice():
    """What each of two trackers is told of running out of memory."""
    probe = Probe()
    probe.track()
    probe.track_failing()
    caught(allocate, 2 * GIB)
    return [line[:2] for line in probe.log()]


def segments_obtained():
    """Stacks of segments: by which function each was obtained."""
    torch.npu.memory._record_memory_history(context="all", stacks="python", max_entries=50)
    keep = make()
    found = [frames(segment)[:1] for segment in torch.npu.memory._snapshot()["segments"]]
    torch.npu.memory._record_memory_history(enabled=None)
    return {"found": found, "kept": keep.nbytes}
