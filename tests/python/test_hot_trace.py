"""What `bench hot` reads of a recording."""

import gzip
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


def test_a_request_that_failed_is_left_out(reader):
    lines = """# npualloc-trace v1
a 0 512 0
m out of memory: 900 bytes
a 1 900 0
f 1
a 2 512 0
f 0
""".splitlines()
    trace = reader.parse(lines, "x")
    assert kinds(trace) == "aaf"
    assert list(trace.events["id"]) == [0, 2, 0]


def test_a_file_that_was_cut_is_read_as_far_as_it_goes(reader, tmp_path, capsys):
    lines = "# npualloc-trace v1\n" + "".join(f"a {n} {n * 7919 % 99991} 0\n" for n in range(9000))
    whole = gzip.compress(lines.encode())
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    trace = reader.read(tmp_path / "cut.gz")
    count = len(trace.events)
    assert 1000 < count < 8000
    assert list(trace.events["bytes"]) == [n * 7919 % 99991 for n in range(count)]
    assert "cut.gz: the file was cut" in capsys.readouterr().err
