"""Replays traces on request, each in a process of its own; `cargo xtask bench replay` runs it.

    python server.py --bench LIBRARY --plugin LIBRARY

Reads requests from standard input, one JSON object a line, and answers each with one line on standard
output: what the C++ side reports, or {"error": TEXT}. A request has

    events    file of 16-byte events (benches/common/trace_event.h)
    streams   number of the trace's streams
    config    value of PYTORCH_NPU_ALLOC_CONF, or null
    plugin    whether npualloc takes the stock allocator's place
    aliases   whether the device lets a handle be mapped at two addresses
    capacity  of the device, bytes
    samples   how many points the timeline shall have
"""

import argparse
import ctypes
import json
import mmap
import os
import sys

import torch
import torch_npu  # noqa: F401

EVENT_BYTES = 16


class Failed(Exception):
    """A replay could not be done."""


def bench_library(path):
    """The C++ side."""
    library = ctypes.CDLL(path)
    text, size, pointer = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p
    library.replay_error.restype = text
    library.replay_allocator.restype = pointer
    library.replay_prepare.argtypes = [ctypes.c_uint64, ctypes.c_int]
    library.replay_run.restype = text
    library.replay_run.argtypes = [pointer, size, pointer, size, size]
    return library


def check_consistency(plugin):
    """Recounts every invariant of npualloc."""
    library = ctypes.CDLL(plugin)
    library.npualloc_check_consistency.restype = ctypes.c_char_p
    broken = library.npualloc_check_consistency()
    if broken is not None:
        raise Failed(f"npualloc is inconsistent: {broken.decode(errors='replace')}")


def replay(bench, plugin, request):
    """One replay, in a fresh process: the allocator's settings are read here for the first time."""
    os.environ.pop("PYTORCH_ALLOC_CONF", None)
    os.environ.pop("PYTORCH_NPU_ALLOC_CONF", None)
    if request["config"] is not None:
        os.environ["PYTORCH_NPU_ALLOC_CONF"] = request["config"]
    if not bench.replay_prepare(request["capacity"], request["aliases"]):
        raise Failed(bench.replay_error().decode(errors="replace"))
    stock = bench.replay_allocator()
    if request["plugin"]:
        torch.ops.load_library(plugin)
        if bench.replay_allocator() == stock:
            raise Failed("the plug-in did not take the stock allocator's place")
    torch.npu.init()
    torch.npu.set_device(0)
    streams = [torch.npu.default_stream(0)]
    streams += [torch.npu.Stream(device=0) for _ in range(1, request["streams"])]
    ids = (ctypes.c_int64 * len(streams))(*(stream.stream_id for stream in streams))
    with open(request["events"], "rb") as file:
        size = os.fstat(file.fileno()).st_size
        # Private and writable only because ctypes wants that.
        events = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    first = ctypes.addressof(ctypes.c_char.from_buffer(events))
    result = bench.replay_run(
        first, size // EVENT_BYTES, ctypes.addressof(ids), len(ids), request["samples"]
    )
    if result is None:
        raise Failed(bench.replay_error().decode(errors="replace"))
    if request["plugin"]:
        check_consistency(plugin)
    return result


def in_child(bench, plugin, line, output):
    """The child's whole life."""
    try:
        answer = replay(bench, plugin, json.loads(line))
    # Whatever happens must reach the parent as an answer.
    except BaseException as error:  # noqa: BLE001
        answer = json.dumps({"error": f"{type(error).__name__}: {error}"}).encode()
    with os.fdopen(output, "wb") as pipe:
        pipe.write(answer)
    # Without the exit handlers: the device goes with the process, and blocks are still alive.
    os._exit(0)


def answer(bench, plugin, line):
    """Forks a child for a request and waits for its answer."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        in_child(bench, plugin, line, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code != 0 or not text:
        text = json.dumps({"error": f"the replay's process ended with status {code}"}).encode()
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True)
    parser.add_argument("--plugin", required=True)
    arguments = parser.parse_args()
    # Answers go to a descriptor of their own, so that no library's output gets between them.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    bench = bench_library(arguments.bench)
    for line in sys.stdin:
        answers.write(answer(bench, arguments.plugin, line) + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
