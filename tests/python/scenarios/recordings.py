"""Recordings that the environment asks for, where threads and processes are not alone."""

import ctypes
import os
import signal

import torch

from scenarios.common import MIB, allocate, caught
from scenarios.probe import Probe
from scenarios.raw_pools import MINE


def under_the_lock():
    """A thread that runs no Python allocates while another waits for it with the interpreter's lock."""
    Probe()
    allocate(1000)
    # Ends the process where it would wait for good.
    signal.alarm(60)
    failed = ctypes.PyDLL(os.environ["NPUALLOC_PROBE"]).probe_allocate_elsewhere(
        0, ctypes.c_size_t(5 * MIB))
    signal.alarm(0)
    return failed


def forked():
    """A forked child ends, with the functions that are registered for that, while its parent goes on."""
    before = allocate(5 * MIB)
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        ctypes.CDLL(None).exit(0)
    _, status = os.waitpid(pid, 0)
    after = allocate(7 * MIB)
    torch.npu.synchronize()
    return {"status": status, "kept": before.nbytes + after.nbytes}


def restored_in_place():
    """A pool of another stream goes back to a checkpoint since which a block gave its place to one that is as long, but
    asked for a byte more."""
    probe = Probe()
    side = torch.npu.Stream()
    allocate(1000)
    with torch.npu.stream(side):
        probe.pool_begin(0, *MINE, 0)
        ended = probe.allocate(41 * MIB + 1)
        state = probe.checkpoint(0, *MINE)
        probe.free(ended)
        probe.allocate(41 * MIB + 2)
        probe.pool_end(0, *MINE)
    probe.restore(0, state)


def taken_back():
    """torch_npu takes one device's cached memory back."""
    probe = Probe()
    probe.free(probe.allocate(30 * MIB))
    probe.free_device_cached_memory(0)
    probe.allocate(41 * MIB)


def restored():
    """A pool goes back to a checkpoint since which a block ended and another one began."""
    probe = Probe()
    probe.pool_begin(0, *MINE, 0)
    probe.allocate(30 * MIB)
    ended = probe.allocate(41 * MIB)
    state = probe.checkpoint(0, *MINE)
    probe.free(ended)
    probe.allocate(50 * MIB)
    probe.pool_end(0, *MINE)
    probe.restore(0, state)


def by_hand(plugin, directory):
    """Recordings that the program begins and ends: before the device is used, two alike of another device than the
    first, and one onto a full disk. The program waits for the device, in vain and then not, and for a stream. What each
    call said."""
    library, runtime = ctypes.CDLL(plugin), ctypes.CDLL("libascendcl.so")
    library.npualloc_trace_start.restype = library.npualloc_trace_stop.restype = ctypes.c_char_p
    early = library.npualloc_trace_start(f"{directory}/early.gz".encode())
    Probe()
    torch.npu.set_device(1)
    library.npualloc_trace_stacks(1)
    said = []
    for path in (f"{directory}/first.gz", f"{directory}/second.gz", "/dev/full"):
        said.append(library.npualloc_trace_start(path.encode()))
        allocate(5 * MIB)
        assert runtime.cannSimSetFaults(b"aclrtSynchronizeDevice:every=1,code=507899") == 0
        assert caught(torch.npu.synchronize)
        assert runtime.cannSimSetFaults(b"") == 0
        torch.npu.current_stream().synchronize()
        torch.npu.synchronize()
        said.append(library.npualloc_trace_stop(None))
    return [one and one.decode() for one in (early, *said)]
