"""How processes end, with memory in every state; and a device that is lost on the way.

What a scenario leaves in this module is there until the interpreter takes it apart.
"""

import atexit
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
import types

import torch
import torch_npu

from harness.balance import imbalances
from scenarios.common import KIB, MIB, allocate, caught, pick, stats

NAMES = ["allocated_bytes.all.current", "reserved_bytes.all.current", "active_bytes.all.current"]
#: Everything in it lives as long as the module.
KEPT = []


def runtime():
    return ctypes.CDLL("libascendcl.so")


def used():
    """Live, cached and pending memory on two streams."""
    KEPT.extend(allocate(size) for size in (700, 3 * MIB, 30 * MIB))
    allocate(64 * MIB)
    side = torch.npu.Stream()
    pending = allocate(5 * MIB)
    with torch.npu.stream(side):
        pending.fill_(1)
    pending.record_stream(side)
    KEPT.append(side)
    return len(KEPT)


def alive():
    """Tensors of a module are destroyed while the interpreter shuts down."""
    return used()


class Late:
    """Uses the device when it is destroyed."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __del__(self):
        # Nobody can catch what this raises; the interpreter writes it down.
        self.tensor = None
        allocate(3 * MIB)


def late():
    """An object that frees and allocates when the interpreter takes the module apart."""
    used()
    KEPT.append(Late(allocate(3 * MIB)))


def cycle():
    """A cycle of tensors that the last garbage collection finds."""
    used()
    one, other = types.SimpleNamespace(), types.SimpleNamespace()
    one.other, other.one = other, one
    one.tensor, other.tensor = KEPT.pop(), KEPT.pop()


def daemon():
    """Daemon threads allocate and free until the process is gone."""
    used()

    def work():
        while True:
            for size in (700, 3 * MIB, 30 * MIB):
                allocate(size)

    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.2)


def outliving():
    """A thread that goes on after the main one has ended, and is waited for."""
    used()

    def work():
        for _ in range(50):
            allocate(3 * MIB)
            time.sleep(0.005)
        KEPT.clear()

    threading.Thread(target=work).start()


def modules_cleared():
    """Nobody holds a module any more."""
    used()
    sys.modules["holder"] = types.ModuleType("holder")
    sys.modules["holder"].tensors = [allocate(3 * MIB) for _ in range(3)]
    KEPT.pop()
    sys.modules.pop("holder")
    torch.npu.synchronize()
    left = stats()["allocation.all.current"]
    KEPT.append(lambda: left)
    atexit.register(sys.modules.clear)
    return left


def pool():
    """A private pool goes after the runtime has, with idle memory and with a tensor."""
    used()
    kept = torch.npu.MemPool()
    with torch.npu.use_mem_pool(kept):
        allocate(30 * MIB)
        KEPT.append(allocate(3 * MIB))
    KEPT.append(kept)


def at_exit():
    """Handlers free, allocate, empty the cache."""
    used()

    def work():
        KEPT.clear()
        tensor = allocate(10 * MIB)
        tensor.fill_(1)
        torch.npu.empty_cache()
        print("handler done", flush=True)

    atexit.register(work)


def reset():
    """The device is reset while tensors live; they are freed afterwards."""
    used()
    torch.npu.synchronize()
    code = runtime().aclrtResetDevice(0)
    return code


def finalized():
    """The runtime is finalised while tensors live."""
    used()
    torch.npu.synchronize()
    runtime().aclrtResetDevice(0)
    return runtime().aclFinalize()


def status(how):
    """The process ends with a status of its own."""
    used()
    if how == "exit":
        atexit.register(sys.stdout.flush)
        sys.exit(3)
    if how == "_exit":
        os._exit(4)
    if how == "signal":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    raise AssertionError(how)


def _tell(function, out):
    signal.alarm(120)
    try:
        text = str(function())
    except BaseException as error:
        text = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    with os.fdopen(out, "w") as file:
        file.write(text)


def _told(function, start):
    """What a forked child came to: its status and what it said."""
    reading, writing = os.pipe()
    wait = start(function, writing)
    os.close(writing)
    with os.fdopen(reading) as source:
        text = source.read()
    return [wait(), text]


def _by_multiprocessing(function, out):
    """Torch_npu is told of these children."""
    child = multiprocessing.get_context("fork").Process(target=_tell, args=(function, out))
    child.start()

    def wait():
        child.join()
        return child.exitcode

    return wait


def _by_system(function, out):
    """Torch_npu is not told of these."""
    pid = os.fork()
    if pid == 0:
        _tell(function, out)
        os._exit(0)
    return lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def forked(by):
    """Children of a process that uses the device."""
    start = {"multiprocessing": _by_multiprocessing, "system": _by_system}[by]
    used()
    torch.npu.synchronize()
    before = pick(stats(), *NAMES)
    children = {
        "allocates": _told(lambda: allocate(3 * MIB).nbytes, start),
        "initialises": _told(torch.npu.init, start),
        "frees": _told(KEPT.clear, start),
        "empties": _told(torch.npu.empty_cache, start),
        "nothing": _told(lambda: "nothing", start),
    }
    return {"children": children, "unchanged": pick(stats(), *NAMES) == before,
            "then": allocate(3 * MIB).nbytes}


def forked_exit():
    """A child that leaves through the interpreter's own end, with its parent's tensors."""
    used()
    # A child waits at its end for what is in torch_npu's task queue, whose thread it does not have: for ever, with either
    # allocator.
    torch.npu.synchronize()
    pid = os.fork()
    if pid == 0:
        signal.alarm(120)
        return "child"
    _, ended = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(ended)


def _step(side):
    """Something of everything."""
    held = [allocate(size) for size in (500, 900 * KIB, 3 * MIB, 30 * MIB)]
    with torch.npu.stream(side):
        held[2].fill_(1)
    held[2].record_stream(side)
    del held[1:]
    torch.npu.empty_cache()
    with torch.npu.stream(side):
        allocate(2 * MIB)
    torch.npu.synchronize()


def lost(plugin, call, code, heal):
    """Every driver call fails from the n-th of some steps on."""
    side = torch.npu.Stream()
    _step(side)
    sim = runtime()
    assert sim.cannSimSetFaults(f"*:from={call},code={code}".encode()) == 0
    errors = []
    for _ in range(4):
        errors.append(caught(_step, side))
        errors.append(caught(torch.npu.synchronize))
    figures = pick(stats(), *NAMES)
    result = {"errors": [error and error["line"] for error in errors],
              "types": sorted({error["types"][0] for error in errors if error}),
              "figures": figures}
    if heal:
        assert sim.cannSimSetFaults(b"") == 0
        # What the lost device still owes: aborted work, failed events.
        result["healing"] = [error and error["line"] for error in
                             (caught(torch.npu.synchronize), caught(torch.npu.empty_cache))]
        result["after"] = caught(_step, side)
        result["end"] = pick(stats(), *NAMES)
        result["imbalances"] = imbalances(torch)
    if plugin is not None:
        check = ctypes.CDLL(plugin).npualloc_check_consistency
        check.restype = ctypes.c_char_p
        broken = check()
        result["broken"] = broken and broken.decode()
    return result


def stopped():
    """stop_device and restart_device, again and again, with memory in every state."""
    side = torch.npu.Stream()
    kept = allocate(10 * MIB)
    address = kept.data_ptr()
    stages = []
    for _ in range(3):
        pending = allocate(30 * MIB)
        with torch.npu.stream(side):
            pending.fill_(1)
        pending.record_stream(side)
        del pending
        allocate(70 * MIB)
        torch_npu.npu.stop_device(0)
        torch_npu.npu.restart_device(0)
        torch.npu.synchronize()
        torch.npu.empty_cache()
        stages.append(pick(stats(), *NAMES))
    return {"stages": stages, "kept": kept.data_ptr() == address}
