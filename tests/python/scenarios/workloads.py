"""The programs of examples/workloads, as they stand but for their size."""

import io
import pathlib
import runpy
import sys
from contextlib import redirect_stdout

import torch

PLACE = pathlib.Path(__file__).parents[3] / "examples" / "workloads"


def run_workload(name, more=()):
    """What it tells, and how many bytes it asked for altogether."""
    sys.path.insert(0, str(PLACE))
    sys.argv = [name, "--tiny", "--steps", "3", *more]
    output = io.StringIO()
    with redirect_stdout(output):
        runpy.run_path(str(PLACE / f"{name}.py"), run_name="__main__")
    stats = torch.npu.memory_stats()
    return {"lines": output.getvalue().splitlines(), "asked": stats["requested_bytes.all.allocated"]}
