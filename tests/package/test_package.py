"""What the installed wheel does."""

import ast
import gzip
import importlib.metadata
import pathlib
import zipfile

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "pluggable.py"

# Prints which library holds the allocator, and what one allocation does to the counters.
ASK = """
import npualloc
before = torch.npu.memory_allocated()
tensor = torch.empty(3 << 20, dtype=torch.uint8, device="npu")
print({
    "enabled": npualloc.enabled(),
    "bytes": torch.npu.memory_allocated() - before,
    "stats": npualloc.stats()["allocated_bytes.all.current"] if npualloc.enabled() else None,
    "grown": npualloc.stats("npu:0")["npualloc.growth"] if npualloc.enabled() else None,
})
"""
BLOCK = (3 << 20) + 512
ON = {"enabled": True, "bytes": BLOCK, "stats": BLOCK, "grown": 1}
OFF = {"enabled": False, "bytes": BLOCK, "stats": None, "grown": None}


def answer(environment, code, **variables):
    status, output, errors = environment.run(code, **variables)
    assert status == 0, errors
    return ast.literal_eval(output.strip().splitlines()[-1])


def test_the_wheel_holds_libraries_for_every_torch_npu_it_is_for(request):
    with zipfile.ZipFile(request.config.getoption("--wheel")) as wheel:
        held = {name.split("/npualloc/lib/")[-1] for name in wheel.namelist()}
    installed = ".".join(importlib.metadata.version("torch-npu").split(".")[:2])
    libraries = ("libnpualloc_torch_npu.so", "libnpualloc_pluggable.so")
    # A wheel may be built for one version only; what is there is whole.
    for series in ("2.13", "2.14"):
        there = [f"{series}/{library}" in held for library in libraries]
        assert all(there) or (series != installed and not any(there)), series


def test_the_library_is_that_of_the_installed_torch_npu(environment):
    code = (
        "import torch, npualloc\n"
        "with open('/proc/self/maps') as maps:\n"
        "    found = {l.split()[-1] for l in maps if 'libnpualloc_torch_npu' in l}\n"
        "print([f.split('/')[-2] for f in found])\n"
    )
    installed = importlib.metadata.version("torch-npu")
    assert answer(environment, code) == [".".join(installed.split(".")[:2])]


def test_import_torch_is_enough(environment):
    assert answer(environment, "import torch\n" + ASK) == ON


def test_torch_and_then_torch_npu(environment):
    assert answer(environment, "import torch\nimport torch_npu\n" + ASK) == ON


def test_torch_npu_first_and_then_npualloc(environment):
    assert answer(environment, "import torch_npu\nimport torch\n" + ASK) == ON


def test_npualloc_first(environment):
    assert answer(environment, "import npualloc\nimport torch\n" + ASK) == ON


def test_without_autoload_one_import_is_enough(environment):
    code = "import torch\nimport npualloc\n" + ASK
    assert answer(environment, code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == ON


def test_it_can_be_turned_off(environment):
    assert answer(environment, "import torch\n" + ASK, NPUALLOC_DISABLE="1") == OFF
    assert answer(environment, "import torch\n" + ASK, NPUALLOC_DISABLE="0") == ON


def test_loading_too_late_says_why(environment):
    code = (
        "import torch, torch_npu\n"
        "torch.empty(1, device='npu')\n"
        "try:\n"
        "    import npualloc\n"
        "except OSError as error:\n"
        "    while error.__cause__ is not None:\n"
        "        error = error.__cause__\n"
        "    print(repr(str(error)))\n"
    )
    reason = answer(environment, code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "before the first use of an NPU" in reason


def test_stats_while_off_is_an_error(environment):
    code = "import torch, npualloc\nnpualloc.stats()"
    status, _, errors = environment.run(code, NPUALLOC_DISABLE="1")
    assert status == 1
    assert "RuntimeError: npualloc is not enabled" in errors


def test_memory_is_checked(environment):
    code = (
        "import ctypes, torch, npualloc\n"
        "tensor = torch.empty(1000, dtype=torch.uint8, device='npu')\n"
        "looked = npualloc.check_memory()\n"
        "torch.npu.synchronize()\n"
        "size = ctypes.c_size_t(2)\n"
        "end = ctypes.c_void_p(tensor.data_ptr() + 1000)\n"
        "assert ctypes.CDLL('libascendcl.so').aclrtMemset(end, size, 1, size) == 0\n"
        "try:\n"
        "    npualloc.check_memory('npu:0')\n"
        "except RuntimeError as error:\n"
        "    found = str(error)\n"
        "print({'looked': looked > 0, 'found': found, 'then': npualloc.check_memory(0) > 0})\n"
    )
    value = answer(environment, code, NPUALLOC_DEBUG="redzones", CANN_SIM_MODE="backed")
    assert value["looked"] and value["then"]
    assert "past the end of a block: 2 bytes differ, at offsets 1000 to 1001" in value["found"]


def test_another_torch_npu_is_named_and_torch_still_works(environment):
    # A version there is no library for, seen by the package only.
    pretend = (
        "import importlib.metadata as m\n"
        "real = m.version\n"
        "m.version = lambda name: '2.99.0' if name == 'torch-npu' else real(name)\n"
    )
    status, output, errors = environment.run(pretend + "import torch\nprint(torch.ones(1).item())")
    assert status == 0, errors
    assert output.strip() == "1.0"
    assert "npualloc is not used: npualloc: no library for torch_npu 2.99.0" in errors
    status, _, errors = environment.run(
        pretend + "import npualloc", TORCH_DEVICE_BACKEND_AUTOLOAD="0"
    )
    assert status == 1
    assert "ImportError: npualloc: no library for torch_npu 2.99.0, only for " in errors


def test_the_pluggable_library(environment):
    code = (
        "import sys, runpy, torch, npualloc\n"
        f"sys.argv = ['pluggable.py', str(npualloc.pluggable_library())]\n"
        f"runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')\n"
    )
    status, output, errors = environment.run(code, NPUALLOC_DISABLE="1")
    assert status == 0, errors
    assert "reserved:" in output


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

READ = """
import gzip
lines = gzip.open({path!r}, "rt").read().splitlines()
"""


def test_a_trace_holds_what_the_program_asked_for(environment, tmp_path):
    path = str(tmp_path / "t.gz")
    code = TRAIN + (
        f"with npualloc.trace({path!r}) as trace:\n"
        "    npualloc.mark('begin')\n"
        "    step(5000)\n"
        "step(6000)\n"
    ) + READ.format(path=path) + "print({'size': trace.size, 'lines': lines})\n"
    value = answer(environment, code)
    assert value["size"] == (tmp_path / "t.gz").stat().st_size
    lines = value["lines"]
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
    path = str(tmp_path / "t.gz")
    code = TRAIN + (
        f"with npualloc.trace({path!r}):\n"
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
    ) + READ.format(path=path) + "print(lines)\n"
    lines = answer(environment, code)
    marks = [lines.index(f"m {name}") for name in ("item", "copy", "device", "no wait", "own", "end")]
    phases = [lines[a + 1:b] for a, b in zip(marks, marks[1:])]
    waits = [[line for line in phase if line[0] in "swe"] for phase in phases]
    assert waits == [["s 0"], ["s 0"], ["s *"], [], ["e"]], phases


def test_a_trace_has_the_events_that_python_waits_for(environment, tmp_path):
    path = str(tmp_path / "t.gz")
    code = TRAIN + (
        "event, other = torch.npu.Event(), torch.npu.Event()\n"
        f"with npualloc.trace({path!r}):\n"
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
    ) + READ.format(path=path) + "print(lines)\n"
    lines = answer(environment, code)
    lines = lines[lines.index("m begin") + 1:lines.index("m end")]
    assert lines == ["a 1 5000 0", "a 2 6000 0", "w 0 1", "w 0 2", "a 3 7000 1", "w 1 0"]


def test_a_trace_has_private_pools(environment, tmp_path):
    path = str(tmp_path / "t.gz")
    code = TRAIN + (
        "pool = torch.npu.MemPool()\n"
        "def inside(size):\n"
        "    with torch.npu.use_mem_pool(pool):\n"
        "        return torch.empty(size, dtype=torch.uint8, device='npu')\n"
        "before = inside(4000)\n"
        f"with npualloc.trace({path!r}):\n"
        "    npualloc.mark('begin')\n"
        "    one = inside(5000)\n"
        "    two = torch.empty(6000, dtype=torch.uint8, device='npu')\n"
        "    identity = pool.id\n"
        "    del pool, one, before\n"
        "    npualloc.mark('end')\n"
    ) + READ.format(path=path) + "print({'id': identity, 'lines': lines})\n"
    value = answer(environment, code)
    lines = value["lines"]
    first, second = value["id"]
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
    path = str(tmp_path / "t.gz")
    code = TRAIN + (
        f"with npualloc.trace({path!r}, stacks=True):\n"
        "    step(5000)\n"
        "    step(5000)\n"
        "    step(7000)\n"
    ) + READ.format(path=path) + "print(lines)\n"
    lines = answer(environment, code)
    found = stacks(lines)
    assert found[5000] == found[7000] == ["step", "<module>"]
    # Written once, though used often; 7000 is another line of the module.
    frames = [line for line in lines if line.startswith("k step <string>:") and "<module>" in line]
    assert len(frames) == len(set(frames)) == 3
    without = answer(environment, code.replace("stacks=True", "stacks=False"))
    assert stacks(without) == {} and not any(line.startswith("k ") for line in without)


def test_the_environment_asks_for_stacks(environment, tmp_path):
    path = tmp_path / "t.gz"
    # The autograd engine's threads run no Python.
    code = TRAIN + "step(5000)\nweight.sum().backward()\n"
    variables = {"NPUALLOC_TRACE": str(path), "NPUALLOC_TRACE_STACKS": "1"}
    status, _, errors = environment.run(code, **variables)
    assert status == 0, errors
    with gzip.open(path, "rt") as file:
        assert stacks(file.read().splitlines())[5000] == ["step", "<module>"]


def test_the_environment_records_a_whole_process(environment, tmp_path):
    path = tmp_path / "t.%p.gz"
    status, _, errors = environment.run(
        TRAIN + "step(5000)\ntorch.npu.empty_cache()\n", NPUALLOC_TRACE=str(path)
    )
    assert status == 0, errors
    (written,) = tmp_path.glob("t.*.gz")
    assert written.name.removeprefix("t.").removesuffix(".gz").isdigit()
    with gzip.open(written, "rt") as file:
        lines = file.read().splitlines()
    sizes = [int(line.split()[2]) for line in lines if line.startswith("a ")]
    assert 4 << 20 in sizes and 5000 in sizes
    assert "e" in lines


def test_a_request_that_fails_is_in_the_trace(environment, tmp_path):
    path = tmp_path / "t.gz"
    code = (
        "import torch\n"
        "try:\n"
        "    torch.empty(1 << 40, dtype=torch.uint8, device='npu')\n"
        "except torch.OutOfMemoryError as error:\n"
        "    print(repr(str(error)))\n"
    )
    text = answer(environment, code, NPUALLOC_TRACE=str(path))
    first, *more = text.splitlines()
    assert first.startswith("NPU out of memory. Tried to allocate 1024.00 GiB (NPU 0; 64.00 GiB")
    more = "\n".join(more)
    assert "waiting for the device and returning all that is idle" in more
    assert "1024.00 GiB together, more than the 64.00 GiB there are" in more
    # It records already.
    assert "NPUALLOC_TRACE" not in more
    with gzip.open(path, "rt") as file:
        lines = file.read().splitlines()
    number = 1 << 40
    at = lines.index(f"m out of memory: {number} bytes")
    assert lines[at + 1].split()[2] == str(number)
    assert lines[at + 2] == "f " + lines[at + 1].split()[1]


RUN_OUT = """
import torch
torch.npu.empty_cache()
keep = torch.empty(3 << 20, dtype=torch.uint8, device="npu")
try:
    torch.empty(1 << 40, dtype=torch.uint8, device="npu")
except torch.OutOfMemoryError:
    pass
"""


def logged(environment, **variables):
    # Fixed segments: their driver calls are what the tests look for.
    variables = {"NPUALLOC_DEFAULT_ENGINE": "fixed", **variables}
    status, _, errors = environment.run(RUN_OUT, **variables)
    assert status == 0, errors
    return [line for line in errors.splitlines() if "] npualloc: " in line], errors


def test_logs_go_through_torch_npus_logger(environment):
    lines, errors = logged(environment, TORCH_NPU_LOGS="+memory", RANK="3")
    assert any("[rank:3] npualloc: device 0: malloc of 20971520 bytes at 0x" in line for line in lines), errors
    assert any("malloc of 10995" in line and "error 207001" in line for line in lines)
    assert all(line[0] in "VI" for line in lines)
    only_full, _ = logged(environment, TORCH_NPU_LOGS="memory")
    assert only_full and all("error 207001" in line for line in only_full)
    filtered, _ = logged(environment, TORCH_NPU_LOGS="+memory", TORCH_NPU_LOGS_FILTER="-malloc of")
    assert filtered and not any("malloc of" in line for line in filtered)


def test_without_being_asked_only_errors_are_shown(environment):
    lines, errors = logged(environment)
    assert lines == []
    assert "NPU out of memory. Tried to allocate 1024.00 GiB" in errors
    # As from torch_npu's own allocator.
    assert "NPU out of memory. Tried to allocate 1024.00 GiB" in logged(environment, NPUALLOC_DISABLE="1")[1]


def test_a_trace_that_cannot_be_written(environment, tmp_path):
    code = TRAIN + (
        "try:\n"
        "    npualloc.trace('/no/such/place')\n"
        "except RuntimeError as error:\n"
        "    print(repr(str(error)))\n"
    )
    assert "/no/such/place" in answer(environment, code)
    status, output, errors = environment.run(
        TRAIN + "step(5000)\nprint('done')\n", NPUALLOC_TRACE="/no/such/place"
    )
    assert (status, output.strip()) == (0, "done"), errors
    assert "/no/such/place" in errors


def test_zz_uninstalling_leaves_torch_as_it_was(environment):
    environment.uninstall()
    status, _, errors = environment.run("import npualloc")
    assert status == 1
    assert "No module named 'npualloc'" in errors
    code = "import torch\nprint(torch.empty(1, device='npu').numel())"
    assert answer(environment, code) == 1
