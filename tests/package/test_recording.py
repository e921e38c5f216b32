"""Recordings by the installed package."""

import ast
import gzip
import json
import os

import pytest

TRAIN = """
import torch
import npualloc
weight = torch.nn.Parameter(torch.empty(1 << 20, device="npu"))
optimizer = torch.optim.SGD([weight], lr=0.1)
side = torch.npu.Stream()
def step(size):
    scratch = torch.empty(size, dtype=torch.uint8, device="npu")
    scratch.record_stream(side)
    side.synchronize()
    optimizer.step()
    torch.npu.synchronize()
"""


def read(path):
    with gzip.open(path, "rt") as file:
        return file.read().splitlines()


def recorded(environment, path, code):
    """The lines that the program recorded to `PATH`; before them what it prints, if it does."""
    status, output, errors = environment.run(f"PATH = {str(path)!r}\n" + TRAIN + code)
    assert status == 0, errors
    lines = read(path)
    return (ast.literal_eval(output), lines) if output else lines


def test_a_trace_holds_what_the_program_asked_for(environment, tmp_path):
    path = tmp_path / "t.gz"
    code = (
        "with npualloc.trace(PATH) as trace:\n"
        "    npualloc.mark('begin')\n"
        "    step(5000)\n"
        "step(6000)\n"
        "print(trace.size)\n"
    )
    size, lines = recorded(environment, path, code)
    assert size == path.stat().st_size
    assert lines[0] == "# npualloc-trace v1"
    assert int(lines[1].removeprefix("# capacity ")) == 64 << 30
    # The weight was there before.
    assert lines[2:5] == [f"a 0 {4 << 20} 0", "m begin", "a 1 5000 0"]
    assert "u 1 1" in lines and "f 1" in lines and "m step 1" in lines
    assert lines.count("s 1") == lines.count("s *") == 1
    assert lines.index("u 1 1") < lines.index("s 1") < lines.index("m step 1") < lines.index("s *")
    assert lines.index("u 1 1") < lines.index("f 1")
    assert not any(line.split()[2:3] == ["6000"] for line in lines)


def test_a_trace_has_what_torch_npu_waits_for(environment, tmp_path):
    code = (
        "with npualloc.trace(PATH):\n"
        "    npualloc.mark('item')\n"
        "    weight[0].item()\n"
        "    npualloc.mark('copy')\n"
        "    weight[:4].cpu()\n"
        "    npualloc.mark('device')\n"
        "    torch.npu.synchronize()\n"
        "    npualloc.mark('no wait')\n"
        "    weight.data.add_(1)\n"
        "    npualloc.mark('own')\n"
        "    torch.npu.empty_cache()\n"
        "    npualloc.mark('end')\n"
    )
    lines = recorded(environment, tmp_path / "t.gz", code)
    marks = [lines.index(f"m {name}") for name in ("item", "copy", "device", "no wait", "own", "end")]
    phases = [lines[a + 1:b] for a, b in zip(marks, marks[1:])]
    waits = [[line for line in phase if line[0] in "swe"] for phase in phases]
    assert waits == [["s 0"], ["s 0"], ["s *"], [], ["e"]], phases


def test_a_trace_has_the_events_that_python_waits_for(environment, tmp_path):
    code = (
        "event, other = torch.npu.Event(), torch.npu.Event()\n"
        "with npualloc.trace(PATH):\n"
        "    npualloc.mark('begin')\n"
        "    one = torch.empty(5000, dtype=torch.uint8, device='npu')\n"
        "    event.record()\n"
        "    two = torch.empty(6000, dtype=torch.uint8, device='npu')\n"
        "    event.synchronize()\n"
        "    event.synchronize()\n"
        "    with torch.npu.stream(side):\n"
        "        three = torch.empty(7000, dtype=torch.uint8, device='npu')\n"
        "    side.record_event(other)\n"
        "    other.synchronize()\n"
        "    npualloc.mark('end')\n"
    )
    lines = recorded(environment, tmp_path / "t.gz", code)
    lines = lines[lines.index("m begin") + 1:lines.index("m end")]
    assert lines == ["a 1 5000 0", "a 2 6000 0", "w 0 1", "w 0 2", "a 3 7000 1", "w 1 0"]


def test_a_trace_has_private_pools(environment, tmp_path):
    code = (
        "pool = torch.npu.MemPool()\n"
        "def inside(size):\n"
        "    with torch.npu.use_mem_pool(pool):\n"
        "        return torch.empty(size, dtype=torch.uint8, device='npu')\n"
        "before = inside(4000)\n"
        "with npualloc.trace(PATH):\n"
        "    npualloc.mark('begin')\n"
        "    one = inside(5000)\n"
        "    two = torch.empty(6000, dtype=torch.uint8, device='npu')\n"
        "    identity = pool.id\n"
        "    del pool, one, before\n"
        "    npualloc.mark('end')\n"
        "print(identity)\n"
    )
    (first, second), lines = recorded(environment, tmp_path / "t.gz", code)
    at = lines.index(f"p {first} {second}")
    assert lines[at + 1].endswith(" 4000 0 0 1"), lines
    # Torch empties the cache when a pool dies.
    assert lines[lines.index("m begin") + 1:lines.index("m end")] == [
        "a 2 5000 0 0 1", "a 3 6000 0", "d 1", "e", "f 2", lines[at + 1].replace("a", "f").split(" 4000")[0]]


def stacks(lines):
    """Of each allocation with a stack, by its size: the functions, the innermost first."""
    known = [[frame.split(" ")[0] for frame in l[2:].split("\t")] for l in lines if l.startswith("k ")]
    allocations = [line.split() for line in lines if line.startswith("a ")]
    return {int(words[2]): known[int(words[4]) - 1] for words in allocations if len(words) == 5}


def test_a_trace_with_stacks_says_who_allocated(environment, tmp_path):
    code = (
        "with npualloc.trace(PATH, stacks=True):\n"
        "    step(5000)\n"
        "    step(5000)\n"
        "    step(7000)\n"
    )
    lines = recorded(environment, tmp_path / "t.gz", code)
    found = stacks(lines)
    assert found[5000] == found[7000] == ["step", "<module>"]
    # Written once, though used often; 7000 is another line of the module.
    frames = [line for line in lines if line.startswith("k step <string>:") and "<module>" in line]
    assert len(frames) == len(set(frames)) == 3
    without = recorded(environment, tmp_path / "t.gz", code.replace("stacks=True", "stacks=False"))
    assert stacks(without) == {} and not any(line.startswith("k ") for line in without)


def test_the_environment_asks_for_stacks(environment, tmp_path):
    path = tmp_path / "t.gz"
    # The autograd engine's threads run no Python. When backward() has returned one of them still drops the graph, for
    # which it takes the interpreter's lock (c10::SafePyObject, in a destructor): a program that ends just then is aborted
    # in torch, with any allocator, as CPython before 3.14 unwinds threads that ask for its lock while it shuts down.
    code = TRAIN + "step(5000)\nweight.sum().backward()\nimport time\ntime.sleep(1)\n"
    variables = {"NPUALLOC_TRACE": str(path), "NPUALLOC_TRACE_STACKS": "1"}
    status, _, errors = environment.run(code, **variables)
    assert status == 0, errors
    assert stacks(read(path))[5000] == ["step", "<module>"]


@pytest.mark.parametrize(
    ("given", "value", "wanted"), [("", "1", True), ("", "0", False), (", stacks=False", "1", False)]
)
def test_a_recording_that_does_not_say_follows_the_environment(environment, tmp_path, given, value, wanted):
    path = tmp_path / "t.gz"
    code = f"PATH = {str(path)!r}\n" + TRAIN + f"with npualloc.trace(PATH{given}):\n    step(5000)\n"
    status, _, errors = environment.run(code, NPUALLOC_TRACE_STACKS=value)
    assert status == 0, errors
    assert (5000 in stacks(read(path))) == wanted


def test_without_a_rank_it_is_0(environment, tmp_path):
    code = (
        "import os\n"
        "os.environ.pop('RANK', None)\n"
        "import torch, npualloc\n"
        "torch.npu.init()\n"
        f"with npualloc.trace({str(tmp_path)!r} + '/%r.gz') as trace:\n"
        "    pass\n"
        "print(repr(trace.path))\n"
    )
    assert environment.answer(code) == str(tmp_path / "0.gz")
    assert (tmp_path / "0.gz").is_file()


def test_the_environment_records_a_whole_process(environment, tmp_path):
    path = tmp_path / "t.%p.gz"
    status, _, errors = environment.run(
        TRAIN + "step(5000)\ntorch.npu.empty_cache()\n", NPUALLOC_TRACE=str(path)
    )
    assert status == 0, errors
    (written,) = tmp_path.glob("t.*.gz")
    assert written.name.removeprefix("t.").removesuffix(".gz").isdigit()
    lines = read(written)
    sizes = [int(line.split()[2]) for line in lines if line.startswith("a ")]
    assert 4 << 20 in sizes and 5000 in sizes
    assert "e" in lines


def test_the_file_is_that_of_the_device_the_program_chooses(environment, tmp_path):
    path, report = tmp_path / "t.gz", tmp_path / "report.json"
    code = (
        "import torch\n"
        "torch.npu.set_device(1)\n"
        "tensor = torch.empty(5000, dtype=torch.uint8, device='npu')\n"
        "print(tensor.get_device())\n"
    )
    variables = {"NPUALLOC_TRACE": str(path), "CANN_SIM_REPORT": str(report)}
    assert environment.answer(code, **variables) == 1
    assert [line.split()[2] for line in read(path) if line.startswith("a ")] == ["5000"]
    assert not list(tmp_path.glob("t.gz.*"))
    # Each rank of a job would have a context on the first one's device.
    devices = json.loads(report.read_text(encoding="utf-8"))["devices"]
    others = [device for device in devices if device["device"] != 1]
    asked = [call["call"] for device in others for call in device["calls"] if call["count"]]
    assert "aclrtGetMemInfo" not in asked, asked


@pytest.mark.parametrize("before", ["", "import torch, npualloc\n"], ids=["alone", "after import"])
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_process_that_multiprocessing_forks_is_recorded_to_its_end(
        environment, tmp_path, method, before):
    (tmp_path / "program.py").write_text(
        f"import multiprocessing\n{before}"
        "def train():\n"
        "    import torch, npualloc\n"
        "    for size in range(1000, 2000):\n"
        "        torch.empty(size, dtype=torch.uint8, device='npu')\n"
        "def main(method):\n"
        "    child = multiprocessing.get_context(method).Process(target=train)\n"
        "    child.start()\n"
        "    child.join()\n"
        "    print(child.exitcode)\n",
        encoding="utf-8",
    )
    path = tmp_path / "t.gz"
    code = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport program\nprogram.main({method!r})\n"
    assert environment.answer(code, NPUALLOC_TRACE=str(path)) == 0
    lines = read(path)
    sizes = [int(line.split()[2]) for line in lines if line.startswith("a ")]
    assert sizes == list(range(1000, 2000))
    assert sum(line.startswith("f ") for line in lines) == 1000


@pytest.mark.parametrize("first", [True, False])
def test_a_recording_that_is_refused_changes_nothing(environment, tmp_path, first):
    code = (
        f"with npualloc.trace(PATH, stacks={first}):\n"
        "    step(5000)\n"
        "    try:\n"
        f"        npualloc.trace(PATH + '.other', stacks={not first})\n"
        "    except RuntimeError as error:\n"
        "        print(repr(str(error)))\n"
        "    step(6000)\n"
    )
    error, lines = recorded(environment, tmp_path / "t.gz", code)
    assert "being written already" in error
    assert sorted(stacks(lines)) == ([5000, 6000] if first else [])
    sizes = [line.split()[2] for line in lines if line.startswith("a ")]
    assert "5000" in sizes and "6000" in sizes


@pytest.mark.parametrize("kind", ["str", "pathlib.Path"])
def test_a_recording_says_where_it_goes(environment, tmp_path, kind):
    code = TRAIN + (
        "import os, pathlib\n"
        f"with npualloc.trace({kind}({str(tmp_path)!r} + '/%r.%p.gz')) as trace:\n"
        "    step(5000)\n"
        "kind = type(pathlib.Path())\n"
        "print([str(trace.path), os.getpid(), isinstance(trace.path, kind)])\n"
    )
    path, process, is_path = environment.answer(code, RANK="7")
    assert path == str(tmp_path / f"7.{process}.gz")
    assert [str(file) for file in tmp_path.iterdir()] == [path]
    assert is_path == (kind != "str")


def test_a_request_that_fails_is_in_the_trace(environment, tmp_path):
    path = tmp_path / "t.gz"
    code = (
        "import torch\n"
        "try:\n"
        "    torch.empty(1 << 40, dtype=torch.uint8, device='npu')\n"
        "except torch.OutOfMemoryError as error:\n"
        "    print(repr(str(error)))\n"
    )
    text = environment.answer(code, NPUALLOC_TRACE=str(path))
    first, *more = text.splitlines()
    assert first.startswith("NPU out of memory. Tried to allocate 1024.00 GiB (NPU 0; 64.00 GiB")
    more = "\n".join(more)
    assert "waiting for the device and returning all that is idle" in more
    assert "1024.00 GiB together, more than the 64.00 GiB there are" in more
    # It records already.
    assert "NPUALLOC_TRACE" not in more
    lines = read(path)
    number = 1 << 40
    at = lines.index(f"m out of memory: {number} bytes")
    assert lines[at + 1].split()[2] == str(number)
    assert lines[at + 2] == "f " + lines[at + 1].split()[1]


def test_a_trace_that_cannot_be_written(environment, tmp_path):
    code = TRAIN + (
        "try:\n"
        "    npualloc.trace('/no/such/place')\n"
        "except RuntimeError as error:\n"
        "    print(repr(str(error)))\n"
    )
    assert "/no/such/place" in environment.answer(code)
    bad = TRAIN + (
        "import os\n"
        "for path in ('/tmp/a\\0b', os.fsdecode(b'/tmp/a\\xff')):\n"
        "    try:\n"
        "        npualloc.trace(path)\n"
        "    except Exception as error:\n"
        "        print(type(error).__name__, ascii(str(error)))\n"
    )
    status, output, errors = environment.run(bad)
    assert status == 0, errors
    null, other = output.splitlines()
    assert null == "ValueError \"npualloc: no trace: null byte in the path '/tmp/a\\\\x00b'\"", null
    assert other.startswith("RuntimeError 'npualloc: no trace: /tmp/a") and "not UTF-8" in other, other
    unreadable = TRAIN + "step(5000)\nprint('done')\n"
    status, output, errors = environment.run(
        unreadable, NPUALLOC_TRACE=os.fsdecode(bytes(tmp_path) + b"/a\xff")
    )
    assert (status, output.strip()) == (0, "done") and "not UTF-8" in errors, errors
    status, output, errors = environment.run(
        TRAIN + "step(5000)\nprint('done')\n", NPUALLOC_TRACE="/no/such/place"
    )
    assert (status, output.strip()) == (0, "done"), errors
    assert "/no/such/place" in errors


def test_a_path_may_be_bytes_and_a_marker_any_text(environment, tmp_path):
    path = tmp_path / "t"
    code = TRAIN + (
        "import os\n"
        f"with npualloc.trace(os.fsencode({str(path)!r})) as trace:\n"
        "    npualloc.mark('a\\0b')\n"
        "    trace.mark('\\ud800x')\n"
        "print(repr(type(trace.path).__name__))\n"
    )
    assert environment.answer(code) == "str"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    assert "m a b" in lines and "m ?x" in lines, lines


def test_a_marker_that_comes_too_late_is_no_error(environment, tmp_path):
    # Each look is followed by the end of the recording, as if by another thread.
    code = (
        "look = npualloc._trace.is_on\n"
        "def and_end(plugin):\n"
        "    on = look(plugin)\n"
        "    if on:\n"
        "        trace.stop()\n"
        "        ended.append(trace)\n"
        "    return on\n"
        "ended = []\n"
        "npualloc._trace.is_on = and_end\n"
        "for mark in (lambda: npualloc.mark('late'), optimizer.step):\n"
        "    trace = npualloc.trace(PATH)\n"
        "    mark()\n"
        "try:\n"
        "    trace.mark('later')\n"
        "except RuntimeError as error:\n"
        "    print([len(ended), str(error)])\n"
    )
    told, lines = recorded(environment, tmp_path / "t.gz", code)
    assert told == [2, "npualloc: no trace is being written"]
    assert not any(line.startswith("m ") for line in lines)


def test_a_recording_that_is_over_leaves_others_alone(environment, tmp_path):
    code = (
        "first = npualloc.trace(PATH + '.first')\n"
        "first.stop()\n"
        "size = first.size\n"
        "told = []\n"
        "with npualloc.trace(PATH + '.inner'):\n"
        "    assert not npualloc._plugin.npualloc_trace_stop(None)\n"
        "    trace = npualloc.trace(PATH)\n"
        "    for call in (first.stop, lambda: first.mark('of the first')):\n"
        "        try:\n"
        "            call()\n"
        "        except RuntimeError as error:\n"
        "            told.append(str(error))\n"
        "trace.mark('still there')\n"
        "trace.stop()\n"
        "with npualloc.trace(PATH + '.last') as last:\n"
        "    last.stop()\n"
        "print([told, first.size == size, trace.size])\n"
    )
    path = tmp_path / "t.gz"
    (told, kept, size), lines = recorded(environment, path, code)
    assert told == ["npualloc: no trace is being written"] * 2
    assert kept and size == path.stat().st_size
    assert [line for line in lines if line.startswith("m ")] == ["m still there"]
