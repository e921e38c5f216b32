"""What of an outcome does not depend on the steps in which virtual segments grow.

Stock maps the large pool in 20 MiB pieces, npualloc in pages of 2 MiB, and a block
that is free in one may lie in memory that the other never mapped.
"""

import re

#: Rows of memory_summary about mapped memory.
ROWS = ("NPU reserved memory", "Non-releasable memory", "Non-releasable allocs", "NPU reserved segments")


def without_segments(outcome, script):
    """The outcome with what is left to compare in the place of each layout."""
    steps = [
        [view(operation[0], given), figures]
        for operation, (given, figures) in zip(script, outcome["steps"], strict=True)
    ]
    snapshot, figures = outcome["end"]
    return outcome | {"steps": steps, "end": [view("snapshot", snapshot), figures]}


def view(operation, given):
    if given is None or (isinstance(given, dict) and "error" in given):
        return given
    if operation == "mem_info":
        return given[1]
    if operation == "summary":
        return without_rows(given, ROWS)
    if operation == "pool_snapshot":
        return {"blocks": blocks(given)}
    if operation == "snapshot":
        trace = given["trace"]
        if isinstance(trace, list):
            trace = [entry for entry in trace if not entry[0].startswith("segment_")]
        else:
            trace = None
        return {"blocks": blocks(given["segments"]), "trace": trace}
    return given


def without_rows(summary, rows):
    """A summary without the rows that have any of these names."""
    # A row's first line may be followed by one for each pool; rules stand between rows.
    parts = re.split(r"^\|-+\|$", summary, flags=re.M)
    return "".join(part for part in parts if not any(row in part for row in rows))


def blocks(segments):
    """Every block in use, whatever segment it lies in: kind, stream, pool, sizes, state, owner;
    and the names of what a segment has."""
    return [
        sorted(
            ([*segment[:4], block[1], block[2], block[3], block[4]]
             for segment in segments for block in segment[8] if block[3] != "inactive"),
            key=str,
        ),
        sorted({name for segment in segments for name in segment[9]}),
    ]
