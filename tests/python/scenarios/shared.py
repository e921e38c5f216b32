"""What sharing memory with other processes, and HCCL's view of it, leave behind."""

import ctypes

import torch

from scenarios.common import MIB, allocate, pick, stats
from scenarios.probe import Probe, refused
from scenarios.sharing import NAMES, RELEASE, RESERVE, others_memory, summed
from scenarios.virtual import calls

#: Each call with the one that undoes it.
PAIRS = [(RESERVE, RELEASE), ("aclrtMemImportFromShareableHandle", "aclrtFreePhysical"),
         ("aclrtMapMem", "aclrtUnmapMem")]


def set_faults(text):
    assert ctypes.CDLL("libascendcl.so").cannSimSetFaults(text.encode()) == 0


def left():
    """Of each pair of calls, how many are not undone."""
    return [calls(done) - calls(undone) for done, undone in PAIRS]


def closed():
    """Calls that are not undone while another process's memory is open, and once it is closed."""
    with others_memory() as (probe, text, _):
        before = left()
        number, _ = probe.open(text)
        opened = [now - then for now, then in zip(left(), before, strict=True)]
        probe.close(number)
        after = [now - then for now, then in zip(left(), before, strict=True)]
    return {"opened": opened, "closed": after}


def closed_elsewhere():
    """Memory opened on one device is closed while the other one is current: whether its device had work before and has
    it after."""
    with others_memory() as (probe, text, _):
        stream = torch.npu.Stream(device=1)
        with torch.npu.device(1):
            number, _ = probe.open(text)
            tensor = allocate(MIB)
            with torch.npu.stream(stream):
                tensor.fill_(1)
            busy = not stream.query()
        torch.npu.set_device(0)
        allocate(1000)
        probe.close(number)
        return {"busy": busy, "then": not stream.query(), "device": torch.npu.current_device()}


def shared_again():
    """Memory goes back to the driver after it was shared, and other memory lies in its place: the texts of both."""
    probe = Probe()
    texts, exports = [], []
    places = []
    for _ in range(2):
        address = probe.raw_alloc(30 * MIB)
        places.append(address)
        before = calls("aclrtIpcMemGetExportKey")
        texts.append(probe.share(address)[0])
        assert probe.share(address)[0] == texts[-1]
        exports.append(calls("aclrtIpcMemGetExportKey") - before)
        probe.raw_delete(address)
        probe.empty_cache(1)
    return {"same place": places[0] == places[1], "lengths": [len(text) for text in texts], "exports": exports,
            "differ": texts[0] != texts[1]}


def hccl_refuses_a_range():
    """HCCL refuses a new range of addresses: an error; ranges that are reserved before and after."""
    probe = Probe()
    side = torch.npu.Stream()
    kept = probe.raw_alloc(41 * MIB)
    probe.build_map(0, 1)
    probe.hccl_result(7)
    before, figures = left(), pick(stats(), *NAMES)
    error = refused(probe.raw_alloc_with_stream, 30 * MIB, side.npu_stream)
    unchanged = left() == before and pick(stats(), *NAMES) == figures
    probe.hccl_result(0)
    again = probe.raw_alloc_with_stream(30 * MIB, side.npu_stream)
    return {"error": error, "unchanged": unchanged, "again": again != kept}


def stays_known(call):
    """The driver refuses to take memory back once: HCCL knows it until it does."""
    probe = Probe()
    address = probe.raw_alloc(41 * MIB)
    probe.build_map(0, 1)
    before = summed(probe.hccl_calls(), {"it": address})
    probe.raw_delete(address)
    set_faults(f"{call}:every=1,code=507899")
    error = refused(probe.empty_cache, 1)
    failed = summed(probe.hccl_calls(), {"it": address})
    set_faults("")
    again = refused(probe.empty_cache, 1)
    return {"before": before, "error": error, "failed": failed, "again": again,
            "end": summed(probe.hccl_calls(), {})}


def moved_late():
    """As `moved`, with memory that HCCL learns of only once there is some."""
    probe = Probe()
    keep = [probe.raw_alloc(size * MIB) for size in (300, 40, 300, 40, 200)]
    for address in (keep.pop(0), keep.pop(1)):
        probe.raw_delete(address)
    keep.append(probe.raw_alloc(500 * MIB))
    error = refused(probe.build_map, 0, 1)
    for address in (keep.pop(0), keep.pop(1)):
        probe.raw_delete(address)
    return [error, refused(probe.raw_alloc, 300 * MIB)]
