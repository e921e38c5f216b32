"""Time of an allocation with its free under NPUALLOC_DEBUG, on the simulated device.

    for words in "" history redzones poison redzones,poison,history; do
        NPUALLOC_DEBUG=$words cargo xtask run --backed -- benches/debug/costs.py
    done

Prints for each size the nanoseconds of a pair: on the host (the least of several batches), and virtual ones
(calls and waiting, as the simulator counts them; see docs/run-without-npu.md).
"""

import ctypes
import os
import time

import torch
import torch_npu  # noqa: F401

BATCHES = 15
PAIRS = {1000: 200, 1 << 20: 50, 64 << 20: 3}


def main():
    sim = ctypes.CDLL("libascendcl.so")
    sim.cannSimNow.restype = ctypes.c_uint64
    print(f"NPUALLOC_DEBUG={os.environ.get('NPUALLOC_DEBUG', '')}")
    for size, pairs in PAIRS.items():
        torch.empty(size, dtype=torch.uint8, device="npu")
        least, virtual = float("inf"), float("inf")
        for _ in range(BATCHES):
            begin, begin_virtual = time.perf_counter_ns(), sim.cannSimNow()
            for _ in range(pairs):
                torch.npu.caching_allocator_delete(torch.npu.caching_allocator_alloc(size))
            least = min(least, (time.perf_counter_ns() - begin) / pairs)
            virtual = min(virtual, (sim.cannSimNow() - begin_virtual) / pairs)
        print(f"{size:>10} bytes: host {least:12.0f} ns, virtual {virtual:12.0f} ns")


main()
