"""Virtual segments: `expandable_segments:True` with its companions."""

import ctypes
import random

import torch
import torch_npu

from scenarios.common import GIB, KIB, MIB, allocate, ladder, pick, stats
from scenarios.probe import Probe

NAMES = [
    "allocated_bytes.all.current",
    "active_bytes.all.current",
    "requested_bytes.all.current",
    "reserved_bytes.all.current",
]


def taken():
    """Memory that the device has given away."""
    free, total = torch.npu.mem_get_info()
    return total - free


def segments():
    """Size and number of blocks of each segment, by address."""
    found = sorted(torch.npu.memory_snapshot(), key=lambda segment: segment["address"])
    return [[s["is_expandable"], s["total_size"], len(s["blocks"])] for s in found]


def frontier():
    """Requests of one stream lie behind one another in one segment; another stream has its own."""
    tensors = [allocate(size * MIB) for size in (30, 50, 11, 200)]
    places = [tensor.data_ptr() for tensor in tensors]
    rows = [segments()]
    with torch.npu.stream(torch.npu.Stream()):
        other = allocate(30 * MIB)
    rows.append(segments())
    small = allocate(700)
    return {
        "in order": places == sorted(places),
        "gap": [after - before for before, after in zip(places, places[1:])],
        "segments": [len(one) for one in rows], "expandable": [one[0] for row in rows for one in row],
        "kept": other.nbytes + small.nbytes,
        "reserved is taken": taken() == stats()["reserved_bytes.all.current"],
        **pick(stats(), *NAMES[:3]),
    }


def emptied():
    """empty_cache unmaps what is free between live blocks, and at the end everything."""
    start = taken()
    tensors = [allocate(40 * MIB) for _ in range(5)]
    stages = []

    def stage():
        stages.append(pick(stats(), *NAMES) | {"taken": taken() - start})

    stage()
    tensors[1] = tensors[3] = None
    stage()
    torch.npu.empty_cache()
    stage()
    # What was unmapped serves again.
    places = [tensors[0].data_ptr(), tensors[2].data_ptr()]
    tensors[1] = allocate(40 * MIB)
    between = places[0] < tensors[1].data_ptr() < places[1]
    stage()
    tensors.clear()
    torch.npu.empty_cache()
    stage()
    return {"stages": stages, "between": between, "segments": segments()}


def unmapped():
    """empty_virt_addr_cache unmaps and keeps the physical memory for what comes."""
    start = taken()
    stages = []

    def stage():
        stages.append(pick(stats(), *NAMES) | {"taken": taken() - start})

    keep = allocate(3 * MIB)
    first = allocate(100 * MIB)
    stage()
    del first
    torch.npu.empty_virt_addr_cache()
    stage()
    before = calls("aclrtMallocPhysical")
    second = allocate(100 * MIB)
    stage()
    made = calls("aclrtMallocPhysical") - before
    del second, keep
    torch.npu.empty_virt_addr_cache()
    torch.npu.empty_cache()
    stage()
    return {"stages": stages, "made": made}


def unmapped_and_counted_anew():
    """What was unmapped goes back also when nothing is counted any more that it was; what is left."""
    start = taken()
    allocate(100 * MIB)
    torch.npu.empty_virt_addr_cache()
    torch.npu.reset_accumulated_memory_stats()
    torch.npu.empty_cache()
    return taken() - start


class CallStat(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64) for n in ("count", "failed", "ns", "wait_ns")]


def calls(name, device=0):
    """How often a driver function was called."""
    found = CallStat()
    library = ctypes.CDLL("libascendcl.so")
    assert library.cannSimGetCallStat(device, name.encode(), ctypes.byref(found)) == 0
    return found.count


def aligned(kib):
    """base_addr_aligned_kb aligns large blocks."""
    tensors = []
    for size in (12345, 3 * MIB + 700, 30 * MIB + 5, 11 * MIB + 513, 2 * MIB + 1, 50 * MIB + 12345):
        tensors.append(allocate(size))
    tensors[2] = None
    tensors.append(allocate(7 * MIB + 3))
    large = [t for t in tensors if t is not None and t.nbytes > MIB]
    return {
        "aligned": [t.data_ptr() % (kib * KIB) == 0 for t in large] if kib else None,
        **pick(stats(), "requested_bytes.all.current", "allocated_bytes.all.current"),
    }


class Memory(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64) for n in ("used", "peak_used", "calls")]


def pages_of_1g(pages):
    """page_size:1g takes large segments in pages of 1 GiB, as many as there are."""
    library = ctypes.CDLL("libascendcl.so")
    library.cannSimSetHuge1gPages(ctypes.c_int32(0), ctypes.c_uint64(pages))
    found = Memory()

    def used():
        # mem_get_info does not know the pages that are put aside.
        assert library.cannSimGetMemory(0, ctypes.byref(found)) == 0
        return found.used

    start = used()
    tensors = [allocate(700), allocate(30 * MIB)]
    rows = [[used() - start, stats()["reserved_bytes.all.current"]]]
    tensors.append(allocate(900 * MIB))
    rows.append([used() - start, stats()["reserved_bytes.all.current"]])
    tensors.append(allocate(2 * GIB))
    rows.append([used() - start, stats()["reserved_bytes.all.current"]])
    tensors.clear()
    torch.npu.empty_cache()
    rows.append([used() - start, stats()["reserved_bytes.all.current"]])
    return rows


def steps():
    """In which steps reserved memory grows."""
    rows, tensors = [], []
    for size in (700, 3 * MIB, 5 * MIB, 30 * MIB, 100 * MIB):
        tensors.append(allocate(size))
        rows.append([stats()["reserved_bytes.small_pool.current"],
                     stats()["reserved_bytes.large_pool.current"]])
    return rows


def full():
    """A device that is full: everything idle is used before a request fails."""
    tensors = [allocate(90 * MIB) for _ in range(10)]
    for index in (1, 3, 5, 7):
        tensors[index] = None
    # No gap is large enough; together they are.
    large = allocate(300 * MIB)
    error = None
    try:
        allocate(GIB)
    except torch.OutOfMemoryError as reason:
        error = str(reason)[:55]
    return {"large": large.nbytes, "error": error, **pick(stats(), *NAMES[:3], "num_ooms")}


def moved():
    """Memory moves to where a request lacks it, without waiting for the device."""
    tensors = [allocate(90 * MIB) for _ in range(10)]
    for tensor in tensors:
        tensor.zero_()
    for index in (1, 3, 5, 7):
        tensors[index] = None
    before = calls("aclrtSynchronizeDevice")
    large = allocate(300 * MIB)
    large.zero_()
    return {
        "synchronisations": calls("aclrtSynchronizeDevice") - before,
        "retries": stats()["num_alloc_retries"],
        "unmapped": calls("aclrtUnmapMem"),
    }


def taken_in_turns():
    """Two streams have most of the device by turns, while the other one's work is still under way."""
    side = torch.npu.Stream()
    main = torch.npu.current_stream()
    kept = allocate(300 * MIB)
    counted = ["aclrtSynchronizeDevice", "aclrtSynchronizeEvent", "aclrtMapMem", "aclrtUnmapMem",
               "aclrtStreamWaitEvent"]
    waits = []
    for turn in range(12):
        before = [calls(name) for name in counted]
        with torch.npu.stream(side if turn % 2 else main):
            tensor = allocate(600 * MIB)
            tensor.fill_(turn)
            torch.npu.current_stream().query()
            del tensor
        waits.append([calls(name) - old for name, old in zip(counted, before, strict=True)])
    del kept
    return {"turns": waits, "retries": stats()["num_alloc_retries"]}


def moved_by_name():
    """As above, from streams that were never any thread's current one."""
    probe = Probe()
    before = calls("aclrtSynchronizeDevice")
    streams = [torch.npu.Stream(priority=priority) for priority in (0, 0, -1)]
    for stream in streams:
        probe.raw_delete(probe.raw_alloc_with_stream(900 * MIB, stream.npu_stream))
    return {
        "synchronisations": calls("aclrtSynchronizeDevice") - before,
        "retries": stats()["num_alloc_retries"],
    }


def moved_after_a_restart():
    """Streams have most of the device by turns, while the others' work is under way, before and after they were made
    anew. Their handles."""
    streams = [torch.npu.Stream(priority=priority) for priority in (0, 0, -1)]
    handles = []
    for part in range(2):
        if part:
            torch_npu.npu.stop_device(0)
            torch_npu.npu.restart_device(0, rebuild_all_resources=True, disable_tensor_unsafe_check=True)
        for stream in streams * 3:
            with torch.npu.stream(stream):
                tensor = allocate(900 * MIB)
                tensor.fill_(1)
                del tensor
        torch.npu.synchronize()
        handles.append([stream.npu_stream for stream in streams])
    torch.npu.empty_cache()
    return handles


def contents_where_memory_moves(seed, steps, plugin=None):
    """Tensors of all sizes on a device that is too small for them, each with its own number, which is read back when it
    goes: two that had the same memory would show, and one that lost its memory."""
    chance = random.Random(seed)
    live, wrong, checked = [], 0, 0

    def drop():
        nonlocal wrong, checked
        tensor, expected = live.pop(chance.randrange(len(live)))
        wrong += int((tensor.cpu() != expected).any())
        checked += 1

    for number in range(steps):
        value = torch.full((int(2 ** chance.uniform(10, 26.5)),), number % 251, dtype=torch.uint8)
        while True:
            try:
                live.append((value.to("npu"), number % 251))
                break
            except torch.OutOfMemoryError:
                drop()
    while live:
        drop()
    value = {"wrong": wrong, "checked": checked}
    if plugin:
        counts = ladder(plugin)
        value |= {name: counts["pages_" + name] for name in ("lent", "unmapped")}
    return value
