"""What the installed wheel does."""

import importlib.metadata
import pathlib
import subprocess
import zipfile

import pytest

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


def test_the_wheel_holds_libraries_for_every_torch_npu_it_is_for(request):
    with zipfile.ZipFile(request.config.getoption("--wheel")) as wheel:
        held = {name.split("/npualloc/lib/")[-1] for name in wheel.namelist()}
    installed = ".".join(importlib.metadata.version("torch-npu").split(".")[:2])
    libraries = ("libnpualloc_torch_npu.so", "libnpualloc_pluggable.so")
    # A wheel may be built for one version only; what is there is whole.
    for series in ("2.13", "2.14"):
        there = [f"{series}/{library}" in held for library in libraries]
        assert all(there) or (series != installed and not any(there)), series


def test_the_libraries_have_no_search_path(request, tmp_path):
    with zipfile.ZipFile(request.config.getoption("--wheel")) as wheel:
        libraries = [name for name in wheel.namelist() if name.endswith(".so")]
        wheel.extractall(tmp_path, libraries)
    assert libraries
    for library in libraries:
        shown = subprocess.run(
            ["readelf", "--dynamic", tmp_path / library], capture_output=True, text=True, check=True
        )
        assert "(NEEDED)" in shown.stdout
        assert "RPATH" not in shown.stdout and "RUNPATH" not in shown.stdout, shown.stdout


def test_the_library_is_that_of_the_installed_torch_npu(environment):
    code = (
        "import torch, npualloc\n"
        "with open('/proc/self/maps') as maps:\n"
        "    found = {l.split()[-1] for l in maps if 'libnpualloc_torch_npu' in l}\n"
        "print([f.split('/')[-2] for f in found])\n"
    )
    installed = importlib.metadata.version("torch-npu")
    assert environment.answer(code) == [".".join(installed.split(".")[:2])]


def test_import_torch_is_enough(environment):
    assert environment.answer("import torch\n" + ASK) == ON


def test_torch_and_then_torch_npu(environment):
    assert environment.answer("import torch\nimport torch_npu\n" + ASK) == ON


def test_torch_npu_first_and_then_npualloc(environment):
    assert environment.answer("import torch_npu\nimport torch\n" + ASK) == ON


def test_npualloc_first(environment):
    assert environment.answer("import npualloc\nimport torch\n" + ASK) == ON


def test_without_autoload_one_import_is_enough(environment):
    code = "import torch\nimport npualloc\n" + ASK
    assert environment.answer(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == ON


def test_it_can_be_turned_off(environment):
    assert environment.answer("import torch\n" + ASK, NPUALLOC_DISABLE="1") == OFF
    assert environment.answer("import torch\n" + ASK, NPUALLOC_DISABLE="0") == ON


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
    reason = environment.answer(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "before the first use of an NPU" in reason


REFUSED = {
    "PYTORCH_NO_NPU_MEMORY_CACHING": ("2", "PYTORCH_NO_NPU_MEMORY_CACHING"),
    "NPUALLOC_DEFAULT_ENGINE": ("bogus", "bogus"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_importing_what_is_refused_is_an_error(environment, name):
    setting, text = REFUSED[name]
    status, _, errors = environment.run("import npualloc", **{name: setting})
    assert status == 1
    # torch_npu may have a last word of its own.
    raised = [line for line in errors.splitlines() if line.startswith("OSError: ")]
    assert len(raised) == 1 and text in raised[0], errors


def test_what_was_refused_stays_refused(environment):
    code = (
        "import torch, npualloc\n"
        "found = []\n"
        "for _ in range(2):\n"
        "    try:\n"
        "        npualloc.load()\n"
        "    except OSError as error:\n"
        "        found.append(str(error))\n"
        "tensor = torch.empty(1000, device='npu')\n"
        "print([found, npualloc.enabled()])\n"
    )
    found, enabled = environment.answer(code, NPUALLOC_DEFAULT_ENGINE="bogus")
    assert len(found) == 2 and all("bogus" in text for text in found)
    assert not enabled


def test_too_late_stays_too_late(environment):
    code = (
        "import torch, torch_npu\n"
        "torch.empty(1, device='npu')\n"
        "found = []\n"
        "for _ in range(3):\n"
        "    try:\n"
        "        import npualloc\n"
        "    except OSError as error:\n"
        "        while error.__cause__ is not None:\n"
        "            error = error.__cause__\n"
        "        found.append(str(error))\n"
        "print(found)\n"
    )
    found = environment.answer(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert len(found) == 3
    assert all("before the first use of an NPU" in text for text in found)


def test_torch_works_where_warnings_are_errors(environment):
    code = "import torch\nprint(torch.empty(3, device='npu').nbytes)\n"
    variables = {"NPUALLOC_DEFAULT_ENGINE": "bogus", "PYTHONWARNINGS": "error::RuntimeWarning"}
    status, output, errors = environment.run(code, **variables)
    assert (status, output.strip()) == (0, "12"), errors
    assert "npualloc is not used: " in errors and "bogus" in errors


def test_other_devices_do_not_sleep(environment):
    code = (
        "import torch, npualloc\n"
        "tensor = torch.empty(8 << 20, dtype=torch.uint8, device='npu')\n"
        "found = []\n"
        "for name in ('cpu', 'cuda:0', torch.device('meta')):\n"
        "    for call in (npualloc.sleep, npualloc.wake_up, npualloc.check_memory):\n"
        "        try:\n"
        "            call(name)\n"
        "        except ValueError as error:\n"
        "            found.append(str(error))\n"
        "print([found, npualloc.sleep(torch.device('npu'))])\n"
    )
    found, slept = environment.answer(code)
    names = [name for name in ("cpu", "cuda:0", "meta") for _ in range(3)]
    assert found == [f"npualloc: {name} is no NPU" for name in names]
    assert slept >= 8 << 20


def test_what_is_no_pool_is_named(environment):
    code = (
        "import torch, npualloc\n"
        "torch.ones(1, device='npu')\n"
        "found = []\n"
        "for pool in (3, 'all', (1, 2, 3), (1, None)):\n"
        "    for call in (npualloc.sleep, npualloc.wake_up):\n"
        "        try:\n"
        "            call(pool=pool)\n"
        "        except TypeError as error:\n"
        "            found.append(str(error))\n"
        "print(found)\n"
    )
    found = environment.answer(code)
    said = "npualloc: pool is a MemPool or its two numbers, not"
    assert found == [f"{said} {pool!r}" for pool in (3, "all", (1, 2, 3), (1, None)) for _ in range(2)]


def test_numbers_of_no_device_and_of_no_pool_are_named(environment):
    code = (
        "import torch, npualloc\n"
        "tensor = torch.empty(8 << 20, dtype=torch.uint8, device='npu')\n"
        "pool = torch.npu.MemPool()\n"
        "with torch.npu.use_mem_pool(pool):\n"
        "    inside = torch.empty(8 << 20, dtype=torch.uint8, device='npu')\n"
        "first, second = pool.id\n"
        "wrong = [dict(device=one) for one in (2**32, -1, -2**32, 2, 'npu:2')]\n"
        "wrong += [dict(pool=one) for one in ((2**64 + first, second), (first, second - 2**64))]\n"
        "found = []\n"
        "for given in wrong:\n"
        "    for call in (npualloc.sleep, npualloc.wake_up, npualloc.check_memory):\n"
        "        if 'pool' in given and call is npualloc.check_memory:\n"
        "            continue\n"
        "        try:\n"
        "            found.append(call(**given))\n"
        "        except ValueError as error:\n"
        "            found.append(str(error))\n"
        "print([pool.id, found, npualloc.sleep(1), npualloc.sleep(0, pool.id)])\n"
    )
    (first, second), found, none, slept = environment.answer(code, CANN_SIM_DEVICES="2")
    numbers = [2**32, -1, -(2**32), 2, 2]
    told = [f"npualloc: there is no NPU {number}; there are 2, numbered from 0" for number in numbers for _ in range(3)]
    for number, pool in ((2**64 + first, (2**64 + first, second)), (second - 2**64, (first, second - 2**64))):
        told += [f"npualloc: {number} is no number of a pool, which has 64 bits: {pool!r}"] * 2
    assert found == told
    assert none == 0 and slept >= 8 << 20


def test_a_truth_value_is_no_device(environment):
    code = (
        "import torch, npualloc\n"
        "torch.npu.init()\n"
        "found = []\n"
        "for call in (npualloc.sleep, npualloc.wake_up, npualloc.check_memory, npualloc.stats):\n"
        "    try:\n"
        "        found.append(call(True))\n"
        "    except TypeError:\n"
        "        found.append('TypeError')\n"
        "print(found)\n"
    )
    assert environment.answer(code, CANN_SIM_DEVICES="2") == ["TypeError"] * 4


@pytest.mark.parametrize("device", ["", "0", "1", "'npu'", "'npu:1'"])
def test_the_first_stats_have_all_counters(environment, device):
    code = (
        "import torch, npualloc\n"
        f"first = npualloc.stats({device})\n"
        "for number in range(2):\n"
        "    torch.empty(1, device=f'npu:{number}')\n"
        f"print([list(first), list(npualloc.stats({device})), first['allocated_bytes.all.current']])\n"
    )
    first, later, allocated = environment.answer(code)
    assert set(later) == set(first) and allocated == 0


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
    value = environment.answer(code, NPUALLOC_DEBUG="redzones", CANN_SIM_MODE="backed")
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
    assert "npualloc is not used: no library for torch_npu 2.99.0" in errors
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
