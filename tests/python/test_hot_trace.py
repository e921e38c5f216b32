"""What `bench hot` reads of a recording."""

import importlib.util
import pathlib

import pytest

READER = pathlib.Path(__file__).parents[2] / "benches" / "hot" / "trace.py"


@pytest.fixture(scope="module")
def reader():
    # By path: the standard library has a module of that name.
    spec = importlib.util.spec_from_file_location("hot_trace", READER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kinds(trace):
    return "".join(map(chr, trace.events["kind"]))


def test_every_kind_of_line_is_understood(reader):
    lines = """# npualloc-trace v1
# capacity 1024
m step 1
k 0 train.py:3 step
p 1 2
a 0 5000 0
u 0 1
w 0 1
d 1
f 0
s *
e
""".splitlines()
    trace = reader.parse(lines, "x")
    assert kinds(trace) == "aufse"
    assert (trace.capacity, trace.streams) == (1024, 2)


def test_what_is_no_line_of_a_trace_is_named(reader):
    with pytest.raises(reader.TraceError, match="x:2: unknown event 'z'"):
        reader.parse(["# npualloc-trace v1", "z 0"], "x")
