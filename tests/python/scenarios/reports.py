"""What torch_npu writes to files from a snapshot, and PyTorch's memory viewer on it."""

import glob
import json
import os
import pickle
import re
import tempfile
import time

import torch
from torch.cuda import _memory_viz

from scenarios.common import GIB, MIB, allocate, caught, stats


def busy():
    """A device with a history and with every kind of block."""
    torch.npu.memory._record_memory_history(max_entries=1000, stacks="python")
    keep = [allocate(700), allocate(3 * MIB), allocate(40 * MIB)]
    for size in (900, 5 * MIB, 80 * MIB):
        allocate(size)
    side = torch.npu.Stream()
    keep[1].record_stream(side)
    return keep


def plain(text):
    """Text without the addresses of this process."""
    return re.sub(r"0x[0-9a-f]+|\b[0-9a-f]{12,16}\b|\b\d{13,}\b", "A", text)


def usages():
    """_save_segment_usage and _save_memory_usage: what the flame graphs are made of."""
    keep = busy()
    taken = torch.npu.memory._snapshot()
    lines = {
        "segments": _memory_viz.segments(taken, format_flamegraph=lambda text: text),
        "memory": _memory_viz.memory(taken, format_flamegraph=lambda text: text),
    }
    # The files need a script from the internet unless it is there; it is stood in for.
    module = torch.npu.memory
    for name in ("_segments", "_memory"):
        original = getattr(module, name)
        setattr(module, name, lambda s, original=original: original(s, lambda text: "<svg>" + text))
    written = {}
    with tempfile.TemporaryDirectory() as directory:
        for name in ("_save_segment_usage", "_save_memory_usage"):
            for given in ({}, {"snapshot": taken}):
                path = os.path.join(directory, name)
                getattr(module, name)(path, **given)
                with open(path, encoding="utf-8") as file:
                    written[f"{name} {len(given)}"] = plain(file.read())
    return {"lines": {k: plain(v) for k, v in lines.items()}, "written": written,
            "kept": len(keep)}


def dump():
    """_dump_snapshot, read back and drawn in every way the viewer has."""
    keep = busy()
    with tempfile.TemporaryDirectory() as directory:
        os.environ["OOM_SNAPSHOT_PATH"] = directory
        path = os.path.join(directory, "dump.pickle")
        torch.npu.memory._dump_snapshot(path)
        with open(path, "rb") as file:
            taken = pickle.load(file)
        others = sorted(
            re.sub(r"\d{14}", "TIME", os.path.basename(p)) for p in glob.glob(directory + "/*")
        )
    drawn = {}
    for name, page in {
        "trace": _memory_viz.trace_plot(taken),
        "trace of segments": _memory_viz.trace_plot(taken, plot_segments=True),
        "trace without freed": _memory_viz.trace_plot(taken, filter_freed=True),
        "segments": _memory_viz.segment_plot(taken),
    }.items():
        drawn[name] = [len(page) > 1000, "MemoryViz" in page]
    return {
        "drawn": drawn,
        "statistics": plain(_memory_viz.segsum(taken)),
        "trace": plain(_memory_viz.trace(taken)),
        "structure": structure(taken),
        "files": others,
        "kept": len(keep),
    }


def dump_on_oom(failures=1, missing=False):
    """What OOM_SNAPSHOT_ENABLE makes of a program that runs out of memory."""
    with tempfile.TemporaryDirectory() as place:
        os.environ["OOM_SNAPSHOT_PATH"] = place + ("/none" if missing else "")
        keep = [allocate(700), allocate(3 * MIB), allocate(40 * MIB)]
        allocate(80 * MIB)
        del keep[1]
        errors = []
        for _ in range(failures):
            if errors:
                # The names of the files have seconds.
                time.sleep(1.1)
            errors.append(caught(run_out))
        files = sorted(os.listdir(place))
        taken = []
        for name in files:
            if name.endswith(".pickle"):
                with open(os.path.join(place, name), "rb") as file:
                    taken.append(pickle.load(file))
    names = [re.sub(r"\d{14}", "TIME", name.replace(str(os.getpid()), "PID")) for name in files]
    return {
        "files": names,
        "taken": [told(one) for one in taken],
        "structure": [structure(one) for one in taken],
        "errors": [[e["types"], e["line"]] for e in errors],
        "messages": [e["message"] for e in errors],
        "after": [allocate(5 * MIB).nbytes, stats()["num_ooms"], len(keep)],
        "history": len((torch.npu.memory._snapshot()["device_traces"] or [[]])[0]),
    }


def run_out():
    """More than the device has."""
    return allocate(2 * GIB)


def told(taken):
    """A snapshot without addresses: its entries and blocks, with the functions of this file they come from."""
    def own(thing):
        return [f["name"] for f in thing.get("frames", []) if f["filename"].endswith("reports.py")]
    return {
        "entries": [[e["action"], e["size"], own(e)] for trace in taken["device_traces"] for e in trace],
        "segments": [
            [s["total_size"], s["allocated_size"], s["active_size"],
             [[b["size"], b["requested_size"], b["state"], own(b)] for b in s["blocks"]]]
            for s in sorted(taken["segments"], key=lambda s: s["address"])
        ],
    }


def structure(value):
    """Names and types all the way down; lists by what their entries have in common."""
    if isinstance(value, dict):
        return {str(k): structure(v) for k, v in sorted(value.items(), key=lambda i: str(i[0]))}
    if isinstance(value, (list, tuple)):
        kinds = {json.dumps(structure(one), sort_keys=True) for one in value}
        return [type(value).__name__, *sorted(kinds)]
    return type(value).__name__


def compared():
    """The viewer's comparison of two snapshots."""
    keep = busy()
    before = torch.npu.memory._snapshot()
    keep.append(allocate(100 * MIB))
    after = torch.npu.memory._snapshot()
    text = _memory_viz.compare(
        before["segments"], after["segments"], format_flamegraph=lambda lines: lines
    )
    return {"text": plain(text), "kept": len(keep)}
