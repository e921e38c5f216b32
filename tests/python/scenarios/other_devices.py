"""What is asked of another device than the first, and of one while another is current."""

import torch
import torch_npu

from scenarios.common import MIB, allocate, pick, stats
from scenarios.devices import places
from scenarios.probe import Probe, refused
from scenarios.raw_pools import MINE
from scenarios.virtual import calls
from scenarios.virtuals import pending

NAMES = ["allocated_bytes.all.current", "active_bytes.all.current", "reserved_bytes.all.current"]


def named():
    """The device that pointers name: of nothing, and of a block that a checkpoint brings back."""
    probe = Probe()
    with torch.npu.device(1):
        probe.pool_begin(1, *MINE, 0)
        block = probe.allocate(3 * MIB)
        state = probe.checkpoint(1, *MINE)
        probe.pool_end(1, *MINE)
        probe.free(block)
        _, made = probe.restore(1, state)
    return {"nothing": str(allocate(0, "npu:1").device), "restored": [probe.block(one)[2] for one in made]}


def cleaned():
    """Uses that are pending on each device are forgotten."""
    probe = Probe()
    rows = []
    for device in (0, 1):
        with torch.npu.device(device):
            side = torch.npu.Stream()
            block = probe.allocate(30 * MIB)
            pending(side, probe.data(block))
            probe.record_stream(block, device, side.stream_id)
            probe.free(block)
    for step in (lambda: None, probe.clean_event):
        step()
        rows.append([pick(stats(device), *NAMES) for device in (0, 1)])
    return rows


def scopes():
    """A pool's number is in use on two devices at once; how much each device's pool holds."""
    probe = Probe()
    torch.empty(1, device="npu:1")
    rows, blocks = [], []
    for device in (0, 1):
        rows.append(refused(probe.pool_begin, device, *MINE, 0))
    for device in (0, 1):
        with torch.npu.device(device):
            blocks.append(probe.raw_alloc((30 + 10 * device) * MIB))
    rows.append(sorted([s["device"], s["total_size"]] for s in torch.npu.memory_snapshot(MINE)))
    for device in (0, 1):
        rows.append(refused(probe.pool_end, device, *MINE))
        probe.raw_delete(blocks[device])
        probe.pool_release(device, *MINE)
    return rows


def marked():
    """All blocks of one device are marked as damaged; memory that is not the allocator's, and none, have no marks."""
    probe = Probe()
    blocks = []
    for device in (0, 1):
        with torch.npu.device(device):
            blocks.append(probe.allocate(3 * MIB))
    rows = []
    for device in (1, 0):
        probe.mark_all_unsafe(device)
        rows.append([probe.block_is_safe(block) for block in blocks])
    others = [probe.foreign(), probe.allocate(0)]
    return {"rows": rows, "safe": [probe.block_is_safe(one) for one in others],
            "made safe": [refused(probe.update_to_safe, one) for one in others]}


def limited():
    """A device's share is set and read while another one is current; where the thread is then."""
    torch.npu.init()
    low_level = torch_npu._C
    rows = [places()]
    low_level._npu_setMemoryFraction(0.5, 1)
    rows.append(places())
    torch.npu.set_device(0)
    low_level._npu_getMemoryFraction(1)
    rows.append(places())
    return rows


def one_too_many():
    """The number of devices, taken for a device."""
    probe = Probe()
    count = torch.npu.device_count()
    rows = [
        refused(probe.captures_underway, count),
        refused(probe.cache_info, count),
        refused(probe.pool_create, count, *MINE),
    ]
    return {"lines": [row and row["line"] for row in rows], "count": count}


def emptied():
    """Calls of the driver on a device that nobody used, for the cache to be emptied."""
    allocate(30 * MIB, "npu:0")
    torch.npu.empty_cache()
    return [calls(name, 1) for name in ("aclrtSetDevice", "aclrtSynchronizeDevice", "aclrtFree")]


def told():
    """What a tracker is told of another device's memory: the devices that it names."""
    probe = Probe()
    probe.track()
    allocate(30 * MIB, "npu:1")
    torch.npu.empty_cache()
    return [line[2] for line in probe.log()]
