"""Threads that do everything at once, with stacks recorded: gathering and dropping one takes the GIL."""

import queue
import random
import signal
import sys
import threading

import torch
import torch_npu

MIB = 1 << 20


def newcomer():
    """A thread that has never chosen a device empties the cache. Returns what is left, or the error."""
    torch.empty(30 * MIB, dtype=torch.uint8, device="npu")
    torch.npu.synchronize()
    found = []

    def work():
        try:
            torch.npu.empty_cache()
            found.append(torch.npu.memory_reserved())
        except Exception as error:  # noqa: BLE001: whatever it is, the test must see it
            found.append(f"{type(error).__name__}: {error}".splitlines()[0])

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    return found


def everything_at_once(threads=6, steps=150):
    """Threads allocate, free what others allocated, record streams, empty caches, take snapshots, change
    settings and switch the recording of history. Returns what is left."""
    torch_npu.npu.memory._record_memory_history(max_entries=500)
    side = [torch.npu.Stream() for _ in range(2)]
    shared = queue.SimpleQueue()
    failures = []

    def work(seed):
        chance = random.Random(seed)
        try:
            torch.npu.set_device(0)
            for _ in range(steps):
                step(chance)
        except Exception as error:  # noqa: BLE001: whatever it is, the test must see it
            failures.append(f"{type(error).__name__}: {error}")

    def step(chance):
        kind = chance.randrange(24)
        if kind < 10:
            size = chance.choice([300, 4096, MIB, 9 * MIB])
            shared.put(torch.empty(chance.randrange(1, size), dtype=torch.uint8, device="npu"))
        elif kind < 19:
            try:
                tensor = shared.get_nowait()
            except queue.Empty:
                return
            if chance.randrange(3) == 0:
                tensor.record_stream(chance.choice(side))
        elif kind == 19:
            torch.npu.empty_cache()
        elif kind == 20:
            torch_npu.npu.memory._snapshot()
        elif kind == 21:
            torch.npu.memory_stats()
        elif kind == 22:
            on = chance.randrange(4) > 0
            torch_npu.npu.memory._record_memory_history(enabled="all" if on else None, max_entries=500)
        else:
            torch.npu.set_per_process_memory_fraction(chance.choice([0.5, 1.0]))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    torch_npu.npu.memory._record_memory_history(enabled=None)
    torch.npu.set_per_process_memory_fraction(1.0)
    while not shared.empty():
        shared.get_nowait()
    torch.npu.synchronize()
    torch.npu.empty_cache()
    stats = torch.npu.memory_stats()
    return {
        "failures": failures,
        "allocated": stats["allocated_bytes.all.current"],
        "reserved": stats["reserved_bytes.all.current"],
    }


def compiled(mib):
    """A request made with the interpreter's lock held, which needs memory that an operator still uses: one that a queue's
    thread compiles in Python."""
    # Ends the process where it would wait for good.
    signal.alarm(60)
    torch.npu.set_compile_mode(jit_compile=True)
    torch.ones(1000, device="npu").add_(1)
    torch.npu.synchronize()
    # Nobody is made to let the lock go.
    sys.setswitchinterval(1000)
    side = torch.npu.Stream()
    sizes = set()
    for _ in range(3):
        with torch.npu.stream(side):
            block = torch.empty(mib * MIB, dtype=torch.uint8, device="npu")
        for _ in range(3):
            block[:4096].view(torch.float32).add_(1)
        block.record_stream(torch.npu.current_stream())
        del block
        with torch.npu.stream(side):
            other = torch.empty(1, dtype=torch.uint8, device="npu")
            # As sharded training does: torch keeps the lock here, unlike in `empty`.
            other.untyped_storage().resize_(mib * MIB)
        sizes.add(other.untyped_storage().nbytes())
        del other
    torch.npu.synchronize()
    signal.alarm(0)
    return sorted(sizes)
