"""What the installed wheel does."""

import ast
import pathlib

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


def test_zz_uninstalling_leaves_torch_as_it_was(environment):
    environment.uninstall()
    status, _, errors = environment.run("import npualloc")
    assert status == 1
    assert "No module named 'npualloc'" in errors
    code = "import torch\nprint(torch.empty(1, device='npu').numel())"
    assert answer(environment, code) == 1
