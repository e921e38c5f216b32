"""Runs a training script as it is and writes what it cost in memory.

    python measure.py --timing LIBRARY --output FIGURES.json SCRIPT ARGS…

The same is done for either allocator: the timing library (the plug-in, told by
NPUALLOC_DISABLE=1 to leave the stock allocator in place) puts a forwarding
allocator around the one that is installed and sums up the host time of its
calls to allocate and free; the statistics are torch_npu's own. The script
learns nothing of it, but must write its losses to the file named by --log.
"""

import argparse
import ctypes
import json
import os
import runpy
import sys
import tempfile
import time

import torch
import torch_npu  # noqa: F401  (loads the plug-in where it is asked for)


class Timing:
    """Host time spent in the allocator's calls to allocate and free."""

    def __init__(self, library):
        self._library = ctypes.CDLL(library)
        self.npualloc = bool(self._library.npualloc_is_registered())
        self._library.npualloc_timing_wrap.restype = ctypes.c_int
        if self._library.npualloc_timing_wrap() != 0:
            raise RuntimeError(f"{library} could not wrap the installed allocator")

    def read(self):
        """Calls and nanoseconds so far."""
        calls, nanoseconds = ctypes.c_uint64(), ctypes.c_uint64()
        self._library.npualloc_timing_read(ctypes.byref(calls), ctypes.byref(nanoseconds))
        return calls.value, nanoseconds.value


def run(script, arguments):
    """Runs the script as the main program."""
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timing", required=True, help="library with npualloc_timing_wrap")
    parser.add_argument("--output", required=True, help="file for the figures, as JSON")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    args = parser.parse_args()

    timing = Timing(args.timing)
    wanted = bool(os.environ.get("NPUALLOC_PLUGIN"))
    if timing.npualloc != wanted:
        sys.exit(f"the allocator is {'npualloc' if timing.npualloc else 'the stock one'}")
    with tempfile.TemporaryDirectory() as directory:
        log = os.path.join(directory, "losses.json")
        start = time.perf_counter_ns()
        run(args.script, [*args.arguments, "--log", log])
        torch.npu.synchronize()
        wall = time.perf_counter_ns() - start
        with open(log, encoding="utf-8") as file:
            losses = json.load(file)

    calls, nanoseconds = timing.read()
    stats = torch.npu.memory_stats()
    figures = {
        "steps": len(losses),
        "losses": losses,
        "peak_allocated_bytes": stats["allocated_bytes.all.peak"],
        "peak_reserved_bytes": stats["reserved_bytes.all.peak"],
        "allocations": stats["allocation.all.allocated"],
        "alloc_retries": stats["num_alloc_retries"],
        "allocator_calls": calls,
        "allocator_ns": nanoseconds,
        "wall_ns": wall,
    }
    with open(args.output, "w", encoding="utf-8") as file:
        json.dump(
            {
                "figures": figures,
                "summary": torch.npu.memory_summary(),
                "stats": torch.accelerator.memory_stats(),
            },
            file,
        )


if __name__ == "__main__":
    main()
