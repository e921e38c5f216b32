"""What torch_npu's profiler records of memory."""

import pathlib
import struct
import tempfile
import threading
import time

import torch
import torch_npu

from scenarios.common import MIB, allocate, stats
from scenarios.probe import Probe
from scenarios.raw_pools import MINE

#: A record: type, length, seven numbers of eight bytes, five of one, thread, process.
RECORD = struct.Struct("<HI7q2b3BQQ")
FIELDS = [
    "type",
    "length",
    "ptr",
    "time",
    "size",
    "allocated",
    "reserved",
    "active",
    "stream",
    "device_type",
    "device",
    "component",
    "kind",
    "allocator",
    "thread",
    "process",
]
KINDS = ["malloc", "free", "block_free"]


def record(directory, work, profile_memory=True):
    """The memory records made while `work` ran."""
    profiler = torch_npu.profiler
    profile = profiler.profile(
        activities=[profiler.ProfilerActivity.CPU],
        profile_memory=profile_memory,
        on_trace_ready=profiler.tensorboard_trace_handler(directory, analyse_flag=False),
    )
    profile.start()
    work()
    profile.stop()
    files = list(pathlib.Path(directory).glob("*/FRAMEWORK/torch.memory_usage"))
    data = b"".join(file.read_bytes() for file in files)
    return [dict(zip(FIELDS, values)) for values in RECORD.iter_unpack(data)]


def plain(records):
    """Without what differs from run to run: addresses and streams are counted off."""
    numbers = {}
    found = []
    for entry in records:
        entry = dict(entry)
        entry["kind"] = KINDS[entry["kind"]]
        entry["ptr"] = numbers.setdefault(entry["ptr"], len(numbers))
        for name in ["time", "thread", "process"]:
            del entry[name]
        found.append(entry)
    return found


def memory():
    """Two sessions: allocations, frees, and memory that another stream uses."""
    allocate(512)
    side = torch.npu.Stream()
    keep = []

    def first():
        keep.extend([allocate(3 * MIB), allocate(5 * MIB)])
        del keep[0]
        keep.append(allocate(MIB // 2))

    def second():
        with torch.npu.stream(side):
            keep[0].add_(1)
        keep[0].record_stream(side)
        del keep[0]
        torch.npu.synchronize()
        keep.append(allocate(30 * MIB))
        keep.clear()

    with tempfile.TemporaryDirectory() as directory:
        sessions = [record(f"{directory}/first", first)]
        allocate(MIB)  # Between the sessions nobody listens.
        sessions.append(record(f"{directory}/second", second))
    times = [entry["time"] for session in sessions for entry in session]
    return {
        "sessions": [plain(session) for session in sessions],
        "in_order": times == sorted(times),
        "threads": len({entry["thread"] for session in sessions for entry in session}),
    }


def given_back(device):
    """Sizes and active bytes recorded where `empty_cache` ends the use of a freed block, and memory of both devices is
    asked for next."""
    keep = [allocate(MIB, "npu:0"), allocate(512, "npu:1")]
    side = torch.npu.Stream(device=device)

    def work():
        block = allocate(3 * MIB, f"npu:{device}")
        with torch.npu.stream(side):
            block.add_(1)
        block.record_stream(side)
        del block
        torch.npu.synchronize(device)
        torch.npu.empty_cache()
        keep.extend([allocate(5 * MIB, "npu:0"), allocate(7 * MIB, "npu:1")])

    with tempfile.TemporaryDirectory() as directory:
        records = record(directory, work)
    return sorted((KINDS[entry["kind"]], entry["size"], entry["active"], entry["device"]) for entry in records
                  if entry["device"] >= 0)


def restored():
    """A pool goes back to a checkpoint while memory is recorded: mallocs less frees of each block, and less ends of its
    use, and whether the last totals are those of the statistics."""
    probe = Probe()
    probe.pool_begin(0, *MINE, 0)
    first = probe.allocate(3 * MIB)
    state = probe.checkpoint(0, *MINE)
    where = {"first": probe.data(first)}

    def work():
        probe.free(first)
        where["second"] = probe.data(probe.allocate(30 * MIB))
        probe.pool_end(0, *MINE)
        probe.restore(0, state)

    with tempfile.TemporaryDirectory() as directory:
        records = record(directory, work)
    counts = {address: [0, 0] for address in where.values()}
    for entry in records:
        steps = {"malloc": [1, 1], "free": [-1, 0], "block_free": [0, -1]}[KINDS[entry["kind"]]]
        before = counts.get(entry["ptr"], [0, 0])
        counts[entry["ptr"]] = [count + step for count, step in zip(before, steps, strict=True)]
    now = stats()
    totals = {name: now[f"{name}_bytes.all.current"] for name in ("allocated", "reserved", "active")}
    return {"counts": [counts.pop(address) for address in where.values()],
            "others": sum(counts.values(), []),
            "totals": {name: records[-1][name] == total for name, total in totals.items()}}


def warmed_up():
    """Sizes that are recorded where the first of two steps only warms the profiler up."""
    profiler = torch_npu.profiler
    allocate(512)
    with tempfile.TemporaryDirectory() as directory:
        profile = profiler.profile(
            activities=[profiler.ProfilerActivity.CPU],
            profile_memory=True,
            schedule=profiler.schedule(wait=0, warmup=1, active=1),
            on_trace_ready=profiler.tensorboard_trace_handler(directory, analyse_flag=False),
        )
        profile.start()
        keep = [allocate(3 * MIB)]
        profile.step()
        keep.append(allocate(5 * MIB))
        profile.step()
        keep.append(allocate(7 * MIB))
        profile.stop()
        files = list(pathlib.Path(directory).glob("*/FRAMEWORK/torch.memory_usage"))
        data = b"".join(file.read_bytes() for file in files)
    return [dict(zip(FIELDS, values))["size"] for values in RECORD.iter_unpack(data)]


def without_memory():
    """A session that does not ask for memory."""
    with tempfile.TemporaryDirectory() as directory:
        return record(directory, lambda: allocate(3 * MIB), profile_memory=False)


def elsewhere():
    """A use on the second device that ends while the first one's memory is asked for, and memory of another thread."""
    for device in ("npu:0", "npu:1"):
        allocate(512, device)
    side = torch.npu.Stream(device=1)
    keep = []
    found = {}

    def on_a_thread():
        found["thread"] = threading.get_native_id()
        keep.append(allocate(7 * MIB))

    def work():
        block = allocate(3 * MIB, "npu:1")
        with torch.npu.stream(side):
            block.add_(1)
        block.record_stream(side)
        del block
        torch.npu.synchronize(1)
        keep.append(allocate(5 * MIB, "npu:0"))
        keep.append(allocate(MIB // 2, "npu:1"))
        other = threading.Thread(target=on_a_thread)
        other.start()
        other.join()

    with tempfile.TemporaryDirectory() as directory:
        begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        records = [entry for entry in record(directory, work) if entry["device"] >= 0]
        end = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    return {
        "records": plain(records),
        "by the thread": [entry["size"] for entry in records if entry["thread"] == found["thread"]],
        "meanwhile": all(begin <= entry["time"] <= end for entry in records),
    }
