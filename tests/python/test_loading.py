"""Loading the plug-in, and settings, good and bad."""

import os
import pathlib
import subprocess
import sys

import pytest

from compare import same_error, without_place


@pytest.fixture
def plugin(request, subject):
    if subject == "stock":
        pytest.skip("the stock allocator is not loaded")
    return request.config.getoption("--plugin")


def test_too_late_is_refused(processes, plugin):
    value = processes.run("loading:too_late", "stock", plugin=plugin).value
    assert value["error"] is not None
    # Torch wraps what loading raised; the reason is the cause of its OSError.
    assert "npualloc" in value["error"]["cause"]
    assert "before" in value["error"]["cause"]
    assert value["unchanged"]
    assert value["address"]
    assert value["stats"]["allocation.all.allocated"] == 2


def test_another_allocator_is_not_replaced(processes, plugin):
    value = processes.run("loading:after_another", "stock", plugin=plugin).value
    assert "another allocator is in place already" in value["error"]["cause"]
    assert (value["used"], value["backend"]) == (0, "pluggable")


def test_an_allocator_that_was_replaced_is_not_in_use(processes, plugin):
    assert processes.run("loading:before_another", "npualloc", plugin=plugin).value == [1, 0]


@pytest.mark.parametrize("value", ["", "0"])
def test_a_variable_that_turns_nothing_off_changes_nothing(processes, plugin, value):
    # It is loaded, or the scenario does not begin.
    given = processes.run("loading:used", "npualloc", env={"NPUALLOC_DISABLE": value}).value
    assert given["npu"]["allocation.all.allocated"] == 1


def test_a_script_ends_with_the_reason_where_npualloc_is_refused(plugin):
    """As `cargo xtask run` and the demo load it."""
    autoload = pathlib.Path(__file__).parents[2] / "xtask" / "python" / "autoload"
    env = os.environ | {
        "PYTHONPATH": str(autoload),
        "NPUALLOC_PLUGIN": plugin,
        "NPUALLOC_DEFAULT_ENGINE": "nonsense",
    }
    command = [sys.executable, "-c", "import torch"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    reason = 'NPUALLOC_DEFAULT_ENGINE should be probe or fixed, not "nonsense"'
    assert done.stderr.splitlines() == [f"error: npualloc was not loaded: npualloc: {reason}"]


def test_loading_twice_changes_nothing(processes, plugin):
    value = processes.run("loading:twice", "npualloc", plugin=plugin).value
    assert value["error"] is None
    assert value["npu"]["allocation.all.allocated"] == 1


def test_a_closed_library_stays(processes, plugin):
    value = processes.run("loading:closed", "stock", plugin=plugin).value
    assert (value["failed"], value["used"]) == (0, 1)
    assert value["stats"]["allocation.all.allocated"] == 1


BAD_SETTINGS = [
    "nonsense:1",
    "max_split_size_mb:abc",
    "max_split_size_mb:1",
    "garbage_collection_threshold:2",
    "garbage_collection_threshold:-0.5",
    "roundup_power2_divisions:3",
    "expandable_segments:maybe",
    "max_split_size_mb",
    ":",
    "base_addr_aligned_kb:33",
    "per_process_memory_fraction:1.5",
    "segment_size_mb:1",
]


@pytest.mark.parametrize("text", BAD_SETTINGS)
def test_bad_settings_in_the_environment_are_stocks_error(run_both, text):
    stock, subject = run_both("loading:used", fresh=True, env={"PYTORCH_NPU_ALLOC_CONF": text})
    if stock.error is None:
        # Stock takes it: so does npualloc, to the same effect.
        assert subject.value == stock.value
    else:
        assert subject.error is not None, f"stock raises {stock.error.line!r}"
        assert subject.error.types == stock.error.types
        assert without_place(subject.error.line) == without_place(stock.error.line)


def test_two_variables_at_once_are_refused(run_both):
    env = {
        "PYTORCH_NPU_ALLOC_CONF": "max_split_size_mb:64",
        "PYTORCH_ALLOC_CONF": "max_split_size_mb:32",
    }
    stock, subject = run_both("loading:used", fresh=True, env=env)
    assert (subject.error is None) == (stock.error is None)
    if stock.error is not None:
        assert without_place(subject.error.line) == without_place(stock.error.line)


@pytest.mark.parametrize("text", BAD_SETTINGS)
def test_bad_settings_while_running_change_nothing(run_both, text):
    stock, subject = run_both("loading:settings", text=text)
    assert subject.value["unchanged"]
    if stock.value["error"] is None:
        assert subject.value["error"] is None
    else:
        same_error(stock.value["error"], subject.value["error"])


def test_a_setting_made_while_running_holds(run_both):
    stock, subject = run_both("loading:setting_holds")
    assert subject.value == stock.value
