"""Memory shared with other processes, and HCCL's view of virtual segments."""

import contextlib
import ctypes
import multiprocessing
import os
import struct
import threading
import time

import torch
import torch.multiprocessing

from scenarios.common import MIB, allocate, caught, pick, stats
from scenarios.engine import change
from scenarios.probe import Probe, refused
from scenarios.virtual import calls

RESERVE, RELEASE = "aclrtReserveMemAddress", "aclrtReleaseMemAddress"
IMPORT, WAIT = "aclrtMemImportFromShareableHandle", "aclrtSynchronizeDevice"
NAMES = ["allocated_bytes.all.current", "reserved_bytes.all.current"]


def texts():
    """The texts that are handed to other processes: their form, and what they name."""
    probe = Probe()
    blocks = [probe.raw_alloc(size) for size in (3 * MIB, 5 * MIB, 700, 40 * MIB)]
    rows = []
    for address in blocks:
        text, offset = probe.share(address)
        rows.append([text[:2].hex(), len(text) if text[1:2] == b"c" else None, offset >= 0,
                     probe.share(address) == (text, offset)])
    first, second = probe.share(blocks[0]), probe.share(blocks[1])
    return {
        "rows": rows,
        "one segment": first[0] == second[0] if first[0][1:2] == b"c" else None,
        "unknown": refused(probe.share, 0xDEAD0000),
    }


def withdrawn():
    """What was shared is closed when its memory goes back to the driver."""
    probe = Probe()
    shared, alone = probe.raw_alloc(30 * MIB), probe.raw_alloc(40 * MIB)
    probe.share(shared)
    rows = []
    for address in (alone, shared):
        probe.raw_delete(address)
        probe.empty_cache(1)
        rows.append([calls("aclrtIpcMemClose"), calls("aclrtFree")])
    return rows


def numbers(text):
    """Those of a virtual segment's pages."""
    _, count = struct.unpack_from("<QQ", text, 2)
    return list(struct.unpack_from(f"<{count}Q", text, 18))


def pages():
    """The text of a virtual segment: version, kind, page size, count, that many numbers."""
    probe = Probe()
    address = probe.raw_alloc(41 * MIB)
    text, offset = probe.share(address)
    size, count = struct.unpack_from("<QQ", text, 2)
    return {
        "kind": text[:2].hex(),
        "length": len(text) == 2 + 16 + 8 * count,
        "covers": offset + 41 * MIB <= size * count,
        "page": size % (2 * MIB),
    }


@contextlib.contextmanager
def others_memory():
    """Another process's memory: the probe, a text for it, and the offset."""
    reader, writer = multiprocessing.Pipe()
    done, finish = multiprocessing.Pipe()
    pid = os.fork()
    if pid == 0:
        # The device was not used before the fork, so this is a process of its own.
        try:
            theirs = Probe()
            address = theirs.raw_alloc(5 * MIB)
            writer.send(theirs.share(address))
            finish.poll(60)
        finally:
            os._exit(0)
    probe = Probe()
    yield probe, *reader.recv()
    done.send(None)
    os.waitpid(pid, 0)


def opened(reopen=True, faults=""):
    """A text opened twice is one mapping; it lives as long as anybody has it open. The closing meets these faults."""
    with others_memory() as (probe, text, offset):
        first, second = probe.open(text), probe.open(text)
        before = pick(stats(), *NAMES)
        probe.close(first[0])
        assert ctypes.CDLL("libascendcl.so").cannSimSetFaults(faults.encode()) == 0
        probe.close(second[0])
        assert ctypes.CDLL("libascendcl.so").cannSimSetFaults(b"") == 0
        left = held()
        somewhere = first[1] != 0
        if reopen:
            again = probe.open(text)
            somewhere = again[1] != 0
            probe.close(again[0])
    return {"same": first[1] == second[1], "offset": offset, "somewhere": somewhere,
            "stats": before, "left": left}


def held():
    """Numbers of ranges, and of another process's pages, that this process has not given back."""
    return [calls(RESERVE) - calls(RELEASE), calls(IMPORT) - calls("aclrtFreePhysical")]


def opened_in_vain():
    """Opening fails halfway; what stays of it, and whether it works afterwards."""
    faults = ctypes.CDLL("libascendcl.so").cannSimSetFaults
    with others_memory() as (probe, text, _):
        assert faults(b"aclrtMapMem:nth=1,code=507899") == 0
        error = refused(probe.open, text)
        assert faults(b"") == 0
        left = held()
        number, address = probe.open(text)
        probe.close(number)
    return {"error": error, "left": left, "somewhere": address != 0}


def opened_elsewhere():
    """Another device's memory is opened, and closed while yet another is current: waits for each device by that."""
    with others_memory() as (probe, text, _):
        torch.empty(1, device="npu:1")
        torch.npu.set_device(1)
        number, address = probe.open(text)
        torch.npu.set_device(0)
        torch.npu.synchronize()
        before = [calls(WAIT, device) for device in (0, 1)]
        probe.close(number)
        waits = [calls(WAIT, device) - old for device, old in enumerate(before)]
    return {"somewhere": address != 0, "waits": waits}


def older():
    """Texts of older versions: with a lower number, and for one with a key, without a header."""
    with others_memory() as (probe, text, _):
        texts = [bytes([0]) + text[1:]]
        if text[1:2] == b"c":
            texts.append(text[2:])
        rows = []
        for one in texts:
            number, address = probe.open(one)
            rows.append(address != 0)
            probe.close(number)
    return rows


def reopened(call):
    """A text is opened again while its closing waits for the device; what `call` counts then."""
    with others_memory() as (probe, text, _):
        number, address = probe.open(text)
        held = threading.Event()
        hold = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: held.wait(5) and None)
        stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
        assert ctypes.CDLL("libascendcl.so").aclrtLaunchHostFunc(stream, hold, None) == 0
        closing = threading.Thread(target=probe.close, args=(number,))
        closing.start()
        while not probe.close_began():
            time.sleep(0.001)
        number, again = probe.open(text)
        held.set()
        closing.join()
        before = calls(call)
        probe.close(number)
        return {"same": again == address, "before": before, "after": calls(call)}


def tampered():
    """Texts that are malformed, cut off, from the future or of memory that is not there."""
    probe = Probe()
    text, _ = probe.share(probe.raw_alloc(5 * MIB))
    key, header = bytes([1]) + b"c", bytes([1]) + b"e"
    texts = {
        "empty": b"",
        "version alone": text[:1],
        "future": bytes([2]) + text[1:],
        "far future": bytes([127]) + text[1:],
        "kind": bytes([1]) + b"x" + text[2:],
        "cut off": text[:-1],
        "cut in half": text[: len(text) // 2],
        "unknown key": key + b"k" * 64 + b"\0",
        "key cut off": key + b"k" * 10,
        "no pages": header + struct.pack("<QQ", 2 * MIB, 0),
        "too many pages": header + struct.pack("<QQ", 2 * MIB, 1 << 60),
        "no page size": header + struct.pack("<QQ", 0, 1) + b"\0" * 8,
        "odd page size": header + struct.pack("<QQ", 12345, 1) + b"\0" * 8,
        "vast page size": header + struct.pack("<QQ", 1 << 62, 1) + b"\0" * 8,
        "pages cut off": header + struct.pack("<QQ", 2 * MIB, 4) + b"\0" * 8,
        "too long": header + struct.pack("<QQ", 2 * MIB, 1) + b"\xff" * 8 + b"\0" * 8,
        "unknown pages": header + struct.pack("<QQ", 2 * MIB, 1) + b"\xff" * 8,
        "noise": bytes(range(200, 256)) * 3,
    }
    free = torch.npu.mem_get_info()[0]
    reserved = calls(RESERVE) - calls(RELEASE)
    rows = {}
    for name, one in texts.items():
        before = stats()
        error = refused(probe.open, one)
        rows[name] = {"error": error, "unchanged": stats() == before
                      and torch.npu.mem_get_info()[0] == free
                      and calls(RESERVE) - calls(RELEASE) == reserved}
    good = allocate(1000)
    return {"rows": rows, "works": good.nbytes}


def worker(queue, answers):
    """A process that gets tensors and says what is in them."""
    torch.npu.set_device(0)
    while True:
        tensor = queue.get()
        if tensor is None:
            return
        answers.put([list(tensor.shape), str(tensor.dtype), str(tensor.device),
                     tensor.cpu().flatten()[:4].tolist(), tensor.cpu().sum().item()])
        del tensor


def tensors():
    """Tensors through torch.multiprocessing's queues: whole ones, views, small and large."""
    context = torch.multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    process = context.Process(target=worker, args=(queue, answers))
    process.start()
    base = torch.arange(1_500_000, dtype=torch.int32).npu()
    sent = [
        torch.arange(10, dtype=torch.float32).npu(),
        base,
        base[1000:2000],
        base[:1_000_000].view(1000, 1000)[10:20],
        torch.ones(3, 5, dtype=torch.float64).npu(),
    ]
    torch.npu.synchronize()
    got = []
    for tensor in sent:
        queue.put(tensor)
        got.append(answers.get(timeout=120))
    queue.put(None)
    process.join(120)
    here = [[list(t.shape), str(t.dtype), str(t.device), t.cpu().flatten()[:4].tolist(),
             t.cpu().sum().item()] for t in sent]
    return {"got": got, "here": here, "exit": process.exitcode}


def zero_copy():
    """HCCL is told of the ranges and pages of virtual segments, of old ones and of new ones."""
    probe = Probe()
    first = probe.raw_alloc(41 * MIB)
    before = probe.hccl_calls()
    probe.build_map(0, 1)
    known = summed(probe.hccl_calls(), {"old": first})
    second = probe.raw_alloc(300 * MIB)
    grown = summed(probe.hccl_calls(), {"old": first, "new": second})
    torch.npu.synchronize()
    for address in (first, second):
        probe.raw_delete(address)
    probe.empty_cache(1)
    end = summed(probe.hccl_calls(), {})
    # All but addresses and sizes.
    asked = sorted({(name, *rest) for name, _, _, *rest in probe.hccl_calls()})
    return {"before": before, "known": known, "grown": grown, "end": end, "asked": asked,
            "twice": refused(probe.build_map, 0, 1)}


def shared_anew():
    """How many pages of memory are named, and how many of those have the names that the same physical handles had when
    they were other memory's."""
    probe = Probe()
    named = []
    for _ in range(2):
        address = probe.raw_alloc(41 * MIB)
        named.append(set(numbers(probe.share(address)[0])))
        torch.npu.synchronize()
        probe.raw_delete(address)
        probe.empty_cache(1)
    return [len(named[1]), len(named[0] & named[1])]


def gone_before():
    """What HCCL is told of memory that came and went before it, and of another device's."""
    probe = Probe()
    kept = []
    for device, size in ((0, 41), (1, 300)):
        with torch.npu.device(device):
            probe.raw_delete(probe.raw_alloc(size * MIB))
            probe.empty_cache(1)
    with torch.npu.device(1):
        kept.append(probe.raw_alloc(41 * MIB))
    probe.build_map(0, 1)
    first = probe.hccl_calls()
    probe.build_map(1, 1)
    return {"none": first, "other": summed(probe.hccl_calls(), {"kept": kept[0]})}


def forgets_nothing():
    """HCCL refuses to forget memory that goes back to the driver."""
    probe = Probe()
    address = probe.raw_alloc(41 * MIB)
    probe.build_map(0, 1)
    torch.npu.synchronize()
    probe.raw_delete(address)
    probe.hccl_result(7)
    error = refused(probe.empty_cache, 1)
    probe.hccl_result(0)
    return {"error": error, **pick(stats(), *NAMES)}


def driver_keeps(fault):
    """The driver keeps what HCCL knows, and then it takes it back: errors, and bytes of pages and ranges that HCCL knows,
    in the beginning and each time."""
    probe = Probe()
    address = probe.raw_alloc(41 * MIB)
    probe.build_map(0, 1)
    torch.npu.synchronize()
    probe.raw_delete(address)
    rows = []

    def note(error):
        ranges, pages = told(probe.hccl_calls())
        rows.append([error and error["line"], sum(pages.values()), len(ranges)])

    note(None)
    for faults in (fault, ""):
        assert ctypes.CDLL("libascendcl.so").cannSimSetFaults(faults.encode()) == 0
        note(refused(probe.empty_cache, 1))
    return rows


def refused_range():
    """HCCL refuses the first range; how many ranges of addresses the driver has given and not had back."""
    probe = Probe()
    probe.build_map(0, 1)
    before = calls(RESERVE) - calls(RELEASE)
    probe.hccl_result(7)
    error = refused(probe.raw_alloc, 41 * MIB)
    return {"error": error, "kept": calls(RESERVE) - calls(RELEASE) - before}


def older_hccl():
    """An HCCL without functions for zero copy."""
    probe = Probe(hccl=False)
    address = probe.raw_alloc(41 * MIB)
    return {"error": refused(probe.build_map, 0, 1), "kept": address != 0}


def moved():
    """Memory moves to where a longer block needs it while HCCL knows it, several times over."""
    probe = Probe()
    probe.build_map(0, 1)
    keep = [probe.raw_alloc(size * MIB) for size in (300, 40, 300, 40, 200)]
    rounds = []
    for size in (500, 300):
        # Two that do not lie side by side.
        for address in (keep.pop(0), keep.pop(1)):
            probe.raw_delete(address)
        error = refused(lambda: keep.append(probe.raw_alloc(size * MIB)))
        known = error is None and summed(probe.hccl_calls(), {"new": keep[-1]})["known"]["new"]
        rounds.append([error and error["line"], known])
    return rounds


def told(calls):
    """Bytes of the ranges and pages that HCCL knows, by address."""
    ranges, pages = {}, {}
    for name, address, size, *_ in calls:
        address, size = int(address), int(size)
        table = ranges if "range" in name else pages
        if name.startswith("no_"):
            table.pop(address)
        else:
            table[address] = size
    return ranges, pages


def summed(calls, blocks):
    """What HCCL knows, and whether it knows each block's memory."""
    ranges, pages = told(calls)

    def covered(address):
        return any(start <= address < start + size for start, size in pages.items())
    inside = all(any(r <= p and p + pages[p] <= r + ranges[r] for r in ranges) for p in pages)
    return {"pages inside ranges": inside, "any": bool(pages), "ranges": len(ranges),
            "known": {name: covered(address) for name, address in blocks.items()}}


def failing_hccl():
    """HCCL refuses: an error, and the allocation that needed it changes nothing."""
    probe = Probe()
    first = probe.raw_alloc(41 * MIB)
    probe.hccl_result(7)
    error = refused(probe.build_map, 0, 1)
    probe.hccl_result(0)
    # Nothing was changed by the failure: it can be tried again.
    probe.build_map(0, 1)
    probe.hccl_result(7)
    before = pick(stats(), *NAMES)
    growth = refused(probe.raw_alloc, 600 * MIB)
    after = pick(stats(), *NAMES)
    probe.hccl_result(0)
    again = probe.raw_alloc(600 * MIB)
    return {"error": error, "growth": growth, "unchanged": after == before,
            "again": again != 0 and first != 0}


def half_told(after):
    """HCCL takes so many ranges and pages, refuses the next one, and all of them at the next try."""
    probe = Probe()
    address = probe.raw_alloc(41 * MIB)
    probe.hccl_result_after(7, after)
    error = refused(probe.build_map, 0, 1)
    left = summed(probe.hccl_calls(), {})
    probe.hccl_result(0)
    probe.build_map(0, 1)
    return {"error": error, "left": left, "known": summed(probe.hccl_calls(), {"it": address})["known"]}


def no_communicator():
    """A null communicator and a device that is not there."""
    probe = Probe()
    address = probe.raw_alloc(41 * MIB)
    return {"null": refused(probe.build_map, 0, 0), "device": refused(probe.build_map, 99, 1),
            "kept": address != 0}


def asleep(plugin):
    """Memory that is asleep is shared, and once it is awake again."""
    probe = Probe()
    library = ctypes.CDLL(plugin)
    address = probe.raw_alloc(41 * MIB)
    change(library, "npualloc_sleep")
    error = refused(probe.share, address)
    change(library, "npualloc_wake_up")
    return {"error": error, "awake": len(probe.share(address)[0])}
