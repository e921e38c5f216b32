"""examples/workloads: each program runs, and asks the same of both allocators."""

import pathlib

import pytest

PLACE = pathlib.Path(__file__).parents[2] / "examples" / "workloads"
PROGRAMS = sorted(path.stem for path in PLACE.glob("*.py") if path.stem != "workload")


def test_the_readme_names_every_program():
    readme = (PLACE / "README.md").read_text()
    assert [name for name in PROGRAMS if f"`{name}.py`" not in readme] == []


@pytest.mark.parametrize("program", [*PROGRAMS, "sharded --batches 3"])
def test_a_workload_runs_and_asks_for_the_same(run_both, program):
    name, *more = program.split()
    outcomes = run_both("workloads:run_workload", name=name, more=more)
    stock, npualloc = (outcome.value for outcome in outcomes)
    assert len(npualloc["lines"]) == 3
    names = [[line.split(", peak")[0] for line in outcome["lines"]] for outcome in (stock, npualloc)]
    assert names[0] == names[1]
    assert npualloc["asked"] == stock["asked"]
