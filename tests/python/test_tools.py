"""Reports to CANN's memory tools, through a stand-in for its library libms_tools_ext.so."""

import os
import pathlib

import pytest

from environments import VIRTUAL
from preload import preloaded, shared_library


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The home of CANN with the stand-in added."""
    directory = tmp_path_factory.mktemp("cann")
    real = os.environ.get("ASCEND_HOME_PATH")
    for entry in pathlib.Path(real).iterdir() if real else []:
        if entry.name != "lib64":
            (directory / entry.name).symlink_to(entry)
    shared_library("ms_tools_ext.c", directory / "lib64" / "libms_tools_ext.so")
    return directory


def environment(home, preload=None):
    return preloaded(preload) | {
        "ASCEND_HOME_PATH": str(home),
        "LD_LIBRARY_PATH": f"{home}/lib64:{os.environ.get('LD_LIBRARY_PATH', '')}",
    }


def test_tools_hear_of_allocations_and_frees(run_both, home):
    # Its presence says that a tool listens.
    hook = shared_library(os.devnull, home / "libascend_kernel_hook.so")
    stock, subject = run_both(
        "tools:events", fresh=True, env=environment(home, hook), home=str(home)
    )
    kinds = [event[0] for event in subject.value]
    assert kinds == ["heap", "block"] * 2 + ["heap", "gone", "heap", "block"] + ["heap", "gone"] * 2 + [
        "heap", "block", "heap", "gone"]
    assert subject.value == stock.value


def test_a_tool_is_found_by_the_file_its_link_leads_to(run_both, home, tmp_path):
    hook = shared_library(os.devnull, home / "libascend_kernel_hook.so")
    link = tmp_path / "hook.so"
    link.symlink_to(hook)
    stock, subject = run_both("tools:events", fresh=True, env=environment(home, link), home=str(home))
    assert subject.value == stock.value != []


def test_the_tools_library_is_found_at_its_home(run, subject, home):
    if subject == "stock":
        pytest.skip("the stock allocator fails where the search path lacks it")
    hook = shared_library(os.devnull, home / "libascend_kernel_hook.so")
    usual = environment(home, hook)
    unsearched = {name: value for name, value in usual.items() if name != "LD_LIBRARY_PATH"}
    given = [run("tools:events", fresh=True, env=env, home=str(home)).value for env in (usual, unsearched)]
    assert given[0] == given[1] != []


def test_nothing_is_said_without_a_tool(run_both, home):
    stock, subject = run_both("tools:events", fresh=True, env=environment(home), home=str(home))
    assert subject.value == stock.value == []


def test_tools_hear_of_a_pool_that_goes_back(run_both, home):
    hook = shared_library(os.devnull, home / "libascend_kernel_hook.so")
    stock, subject = run_both(
        "tools:restored", fresh=True, env=environment(home, hook), home=str(home)
    )
    assert subject.value == stock.value == [True, True, True]


@pytest.mark.parametrize("env", [{}, VIRTUAL], ids=["fixed", "virtual"])
def test_memory_is_asked_of_a_preloaded_library(run_both, tmp_path, env):
    library = shared_library("counting.c", tmp_path / "libcounting.so")
    stock, subject = run_both(
        "tools:counted", fresh=True, env=env | preloaded(library), library=str(library),
    )
    for fixed, physical, _ in (stock.value, subject.value):
        assert (fixed > 0, physical > 0) == (not env, bool(env))
    if not env:
        assert subject.value == stock.value
