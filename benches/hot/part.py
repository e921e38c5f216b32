"""Measures one part of the cases, the stock allocator and npualloc in turns; `hot.py` runs it.

    python part.py --part PART --bench LIBRARY --plugin LIBRARY --output FILE [--quick] [--case TEXT]…
                   [--trace NAME FILE CAPACITY STREAMS]
"""

import argparse
import ctypes
import json
import math
import sys

import numpy
import torch
import torch_npu  # noqa: F401

from hot import PARTS, SEVERAL_THREADS, THREADS, TRACE, is_wanted
from libraries import NPUALLOC, STOCK, SUBJECTS, Bench, Failed, Plugin
from measurer import Measurer
from scaling import scaling
from streams import Simulator, Streams

MIB = 1 << 20
# Bytes of an event in a trace's binary form, `benches/common/trace_event.h`.
EVENT_SIZE = 16
# How often each live block is replaced in a round.
ROUNDS_OF_SLOTS = 8
# The part of a device's memory that a case may need: each allocator has one, and neither places blocks without loss.
MOST_USED = 0.85


class Case:
    """A row of the table. `steps` is the length of a round where the case does not adapt it, `least_steps` the least
    where it does; `needs`: bytes of each device."""

    def __init__(self, name, kind, numbers=(), steps=None, latencies=True, before=None, least_steps=0, needs=0):
        self.name = name
        self.kind = kind
        self.numbers = [tuple(numbers)] * 2
        self.steps = steps
        self.least_steps = least_steps
        self.latencies = latencies
        # Called with the subject before every round, and its result after it.
        self.before = before
        self.needs = needs

    def open(self, bench, subject):
        """Makes the case for a subject."""
        numbers = (ctypes.c_int64 * 4)(*self.numbers[subject])
        return bench.checked(bench.open(subject, self.kind.encode(), numbers))

    def close(self, bench, subject, opened):
        """Ends it."""
        bench.close(opened)


class Replay(Case):
    """A trace, on a device whose memory is limited to what it was recorded with."""

    def __init__(self, name, file, capacity, count, streams):
        super().__init__(f"replay {name}", "replay", steps=1)
        self._file = file
        self._capacity = int(capacity)
        self._count = int(count)
        self._streams = streams

    def open(self, bench, subject):
        device = bench.device(subject)
        ids = [self._streams(device, index) for index in range(self._count)]
        events = numpy.fromfile(self._file, dtype=numpy.uint8)
        total = torch.npu.mem_get_info(device)[1]
        if 0 < self._capacity < total:
            bench.checked(bench.limit(subject, self._capacity / total))
        ids = (ctypes.c_int64 * len(ids))(*ids)
        return bench.checked(
            bench.open_replay(subject, events.ctypes.data, len(events) // EVENT_SIZE, ctypes.addressof(ids))
        )

    def close(self, bench, subject, opened):
        super().close(bench, subject, opened)
        bench.checked(bench.limit(subject, 1.0))


def mean_size(largest, skew):
    """What a block of the case `churn` has on average; see `draw` in blocks.cpp."""
    octaves = math.log2(largest / 512)
    points = (numpy.arange(10_000) + 0.5) / 10_000
    return int(512 * numpy.exp2(octaves * points**skew).mean())


def threads():
    """The cases of several threads."""
    for name, (threads, two_devices) in THREADS.items():
        if two_devices and torch.npu.device_count() < 4:
            print(f"skipped: {name} (needs 4 devices)", file=sys.stderr)
        else:
            yield Case(name, "threads", [threads, two_devices], latencies=False, least_steps=200_000)


def calls(bench, streams, simulator):
    """The cases of one thread but the replays."""
    for size, text in [
        (512, "512 B"), (4096, "4 KB"), (MIB, "1 MB"), (8 * MIB, "8 MB"), (512 * MIB, "512 MB")
    ]:
        yield Case(f"one size, {text}", "pair", [size])
    every = (100, 1000, 10_000, 100_000)
    for largest, skew, text, numbers in [
        (2 * MIB, 1, "2 MB", every), (256 * MIB, 6, "256 MB", every), (256 * MIB, 1, "256 MB, octaves alike", (1000,))
    ]:
        for slots in numbers:
            # Most of a round shall find the caches as it left them, not as the other allocator's turn did.
            yield Case(
                f"random to {text}, {slots:,} live",
                "churn",
                [slots, largest, skew],
                least_steps=ROUNDS_OF_SLOTS * slots,
                needs=slots * mean_size(largest, skew),
            )
    for size, text in [(4096, "4 KB"), (8 * MIB, "8 MB")]:
        yield Case(f"DataPtr, {text}", "data_ptr", [size])

    yield Case("history on, 1,000 live", "history", [1000])
    yield Case("getDeviceStats", "stats")
    yield Case("snapshot, 100,000 live", "snapshot", [100_000], steps=1, latencies=False)

    # Last, as these run operators, which get memory from npualloc on the stock allocator's device too. In a process that
    # had memory of two devices a free has to look up which device a block is on.
    def stream_case(name, before, steps):
        case = Case(name, "record_stream", before=before, steps=steps)
        case.numbers = [
            (64 << 10, streams.id(bench.device(subject), 1)) for subject in SUBJECTS
        ]
        return case

    def completed(subject):
        return lambda: None

    def pending(subject):
        device = bench.device(subject)
        stream = streams.get(device, 1)
        if not simulator.keep_busy(stream):
            raise Failed("the simulated stream is idle although a kernel was started")
        return lambda: torch.npu.synchronize(device)

    yield stream_case("record_stream, completed", completed, 10_000)
    if simulator:
        yield stream_case("record_stream, pending", pending, 10_000)
    else:
        print("skipped: record_stream, pending (needs the simulator's clock)", file=sys.stderr)
    event = Case("event of a record_stream alone", "event", steps=10_000)
    event.numbers = [(streams.id(bench.device(subject), 1),) for subject in SUBJECTS]
    yield event


def cases(part, bench, trace):
    """Every case of a part, in the order of the table."""
    streams = Streams()
    if part == SEVERAL_THREADS:
        return threads()
    if part == TRACE:
        return iter([Replay(*trace, streams.id)])
    return calls(bench, streams, Simulator())


def measured(measurer, bench, wanted):
    """Rows of the cases for which the device is large enough."""
    rows = []
    for case in wanted:
        there_is = torch.npu.mem_get_info(bench.device(NPUALLOC))[1]
        if case.needs > there_is * MOST_USED:
            sizes = [f"{size / 2**30:.0f} GiB" for size in (case.needs, there_is)]
            print(f"skipped: {case.name} (needs {sizes[0]}, the device has {sizes[1]})", file=sys.stderr)
            continue
        print(f"case: {case.name}", flush=True)
        rows.append(measurer.measure(case))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", required=True, choices=PARTS)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--case", action="append", default=[])
    parser.add_argument("--trace", nargs=4)
    arguments = parser.parse_args()

    bench = Bench(arguments.bench)
    bench.keep(STOCK)
    plugin = Plugin(arguments.plugin)
    bench.keep(NPUALLOC)
    if bench.current(STOCK):
        sys.exit("the plug-in did not take the stock allocator's place")
    try:
        torch.npu.init()
    except ValueError as error:
        # Settings that are refused. What follows the first line is when and where.
        raise Failed(str(error).partition("\n")[0]) from error
    bench.checked(bench.init(torch.npu.device_count()))

    measurer = Measurer(bench, plugin, arguments.quick)
    every = cases(arguments.part, bench, arguments.trace)
    wanted = (case for case in every if is_wanted(case.name, arguments.case))
    if arguments.part == SEVERAL_THREADS:
        rows, figures = scaling(measurer, bench, {case.name: case for case in wanted})
    else:
        rows, figures = measured(measurer, bench, wanted), {}
    with open(arguments.output, "w", encoding="utf-8") as file:
        json.dump({"cases": rows, "derived": figures}, file)


if __name__ == "__main__":
    try:
        main()
    except (Failed, OSError) as error:
        sys.exit(f"error: {error}")
