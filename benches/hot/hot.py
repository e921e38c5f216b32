"""Measures the stock allocator and npualloc in turns; `cargo xtask bench hot` runs it.

    python hot.py --bench LIBRARY --plugin LIBRARY --output FILE [--quick] [--case TEXT]…
                  [--trace NAME FILE CAPACITY STREAMS]…

Each part of the cases is measured in a process of its own (`part.py`): each trace, since an allocator goes by what
a program did before, and a process runs one program; and the cases of several threads.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

# The parts.
SEVERAL_THREADS, CALLS, TRACE = PARTS = ("threads", "calls", "trace")
# Cases of several threads: of one, for comparison, and of two by where they are.
ALONE = "threads: 1"
TOGETHER = {text: f"threads: 2, {text}" for text in ("one device", "two devices")}
# What they are made with: threads, whether each has a device of its own. They are measured in a process whose task
# queues are off: the queues' threads look for work all the time, on each device, and take half a CPU from those that
# are measured.
THREADS = {ALONE: (1, 0), TOGETHER["one device"]: (2, 0), TOGETHER["two devices"]: (2, 1)}


def is_wanted(name, texts):
    """Whether a case's name contains any of the texts, if there are some."""
    return not texts or any(text in name for text in texts)


def derived(rows):
    """What follows from several rows."""
    by_name = {row["case"]: row for row in rows}
    figures = {}
    for who in ("stock", "npualloc"):
        key = f"{who}_ns"
        for text in ("2 MB", "256 MB"):
            few = by_name.get(f"random to {text}, 100 live")
            many = by_name.get(f"random to {text}, 100,000 live")
            if few and many:
                figures[f"{who}: cost at 100,000 live / at 100, to {text}"] = many[key] / few[key]
    return figures


def measured(arguments, part, trace=None):
    """The rows of one part, and what it found besides."""
    output = f"{arguments.output}.part"
    command = [sys.executable, Path(__file__).with_name("part.py"), "--part", part, "--output", output]
    command += ["--bench", arguments.bench, "--plugin", arguments.plugin]
    command += ["--quick"] if arguments.quick else []
    command += [word for text in arguments.case for word in ("--case", text)]
    command += ["--trace", *trace] if trace else []
    settings = {"TASK_QUEUE_ENABLE": "0"} if part == SEVERAL_THREADS else {}
    code = subprocess.run(command, env=os.environ | settings, check=False).returncode
    if code:
        # It said why, unless a signal ended it.
        sys.exit(code if code > 0 else f"error: measuring {part} was ended by signal {-code}")
    with open(output, encoding="utf-8") as file:
        found = json.load(file)
    os.remove(output)
    return found["cases"], found["derived"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--case", action="append", default=[])
    parser.add_argument("--trace", action="append", nargs=4, default=[])
    arguments = parser.parse_args()

    parts = [(SEVERAL_THREADS, None)] if any(is_wanted(name, arguments.case) for name in THREADS) else []
    parts.append((CALLS, None))
    parts += [(TRACE, trace) for trace in arguments.trace if is_wanted(f"replay {trace[0]}", arguments.case)]
    rows, figures = [], {}
    for part, trace in parts:
        more, found = measured(arguments, part, trace)
        rows += more
        figures |= found
    if not rows:
        sys.exit(f"no case's name contains any of {arguments.case}")
    with open(arguments.output, "w", encoding="utf-8") as file:
        json.dump({"cases": rows, "derived": figures | derived(rows)}, file, indent=1)


if __name__ == "__main__":
    main()
