"""Allocation traces: text, plain or gzip'ed, one event a line.

    # npualloc-trace v1          header
    # capacity BYTES
    # workload TEXT
    a ID BYTES STREAM            allocation, as requested; ids increase
    f ID                         free
    u ID STREAM                  record_stream
    s STREAM | s *               the stream (the device) was synchronised
    e                            empty_cache
    m LABEL                      marker

More kinds of lines (`crates/npualloc-replay/src/trace/mod.rs`) are left out, and so are requests that failed in the
recorded run: the marker `m out of memory: BYTES bytes`, then an allocation and its free.
"""

import gzip
import sys

import numpy

EVENT = numpy.dtype([("bytes", "u8"), ("id", "u4"), ("stream", "u2"), ("kind", "u2")])
EVERY_STREAM = 0xFFFF


class TraceError(Exception):
    """A file that is no trace; the text says where."""


class Trace:
    """Events ready for the C++ side, and what they need."""

    def __init__(self, events, capacity, streams):
        self.events = events
        self.capacity = capacity
        self.streams = streams


def read(path):
    """Reads a trace."""
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    opened = gzip.open(path, "rt", encoding="utf-8") if packed else open(path, encoding="utf-8")
    with opened as lines:
        return parse(until_cut(lines, path), path)


def until_cut(lines, path):
    """The lines of a file; those of a gzip file whose end is missing as far as they go."""
    try:
        yield from lines
    except EOFError:
        print(f"warning: {path}: the file was cut; what comes before that is read", file=sys.stderr)


def parse(lines, name):
    """Understands the lines of a trace."""
    rows, capacity, streams, version = [], 0, 1, False
    failed, left_out = False, None
    for number, line in enumerate(lines, 1):
        words = line.split()
        if words[:4] == ["m", "out", "of", "memory:"]:
            failed = True
        # Markers, stacks, pools and events waited for: the allocators are given none of them.
        if not words or words[0] in ("m", "k", "p", "d", "w"):
            continue
        try:
            kind = words[0]
            if kind == "#":
                version = version or words[1:] == ["npualloc-trace", "v1"]
                if words[1:2] == ["capacity"]:
                    capacity = int(words[2])
            elif kind == "a":
                stream = int(words[3])
                streams = max(streams, stream + 1)
                if failed:
                    failed, left_out = False, int(words[1])
                    continue
                rows.append((int(words[2]), int(words[1]), stream, ord("a")))
            elif kind == "f" and int(words[1]) == left_out:
                left_out = None
            elif kind == "f":
                rows.append((0, int(words[1]), 0, ord("f")))
            elif kind == "u":
                stream = int(words[2])
                streams = max(streams, stream + 1)
                rows.append((0, int(words[1]), stream, ord("u")))
            elif kind == "s":
                stream = EVERY_STREAM if words[1] == "*" else int(words[1])
                rows.append((0, 0, stream, ord("s")))
            elif kind == "e":
                rows.append((0, 0, 0, ord("e")))
            else:
                raise ValueError(f"unknown event {kind!r}")
        except (ValueError, IndexError) as error:
            raise TraceError(f"{name}:{number}: {error}") from error
    if not version:
        raise TraceError(f"{name}: no line '# npualloc-trace v1'")
    return Trace(numpy.array(rows, dtype=EVENT), capacity, streams)


def synthetic(layers=48, steps=40, seed=7):
    """A training-like trace: activations of varying length kept until the backward pass, temporary
    buffers, a second stream that uses some of them."""
    random = numpy.random.default_rng(seed)
    lines = ["# npualloc-trace v1", "# capacity 68719476736"]
    last = -1

    def allocate(size):
        nonlocal last
        last += 1
        lines.append(f"a {last} {size} 0")
        return last

    weights = [allocate(int(random.integers(1, 33)) << 20) for _ in range(layers)]
    for _ in range(steps):
        tokens = int(random.integers(64, 2049))
        kept = []
        for _ in weights:
            for width in (4096, 11008, 4096):
                temporary = allocate(512 * int(random.integers(1, 512)))
                kept.append(allocate(2 * tokens * width))
                lines.append(f"f {temporary}")
        for weight in reversed(weights):
            gradient = allocate(2 * tokens * 4096)
            if weight % 8 == 0:
                lines.append(f"u {gradient} 1")
            for _ in range(3):
                lines.append(f"f {kept.pop()}")
            lines.append(f"f {gradient}")
        lines.append("s *")
    return parse(lines, "synthetic")
