"""Reports to CANN's memory tools, through a stand-in for its library libms_tools_ext.so."""

import os
import pathlib
import subprocess

import pytest

from environments import VIRTUAL

NATIVE = pathlib.Path(__file__).parent / "native"
SOURCE = NATIVE / "ms_tools_ext.c"


def shared_library(source, library):
    library.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", str(source), "-o", str(library)], check=True
    )
    return library


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The home of CANN with the stand-in added."""
    directory = tmp_path_factory.mktemp("cann")
    real = os.environ.get("ASCEND_HOME_PATH")
    for entry in pathlib.Path(real).iterdir() if real else []:
        if entry.name != "lib64":
            (directory / entry.name).symlink_to(entry)
    shared_library(SOURCE, directory / "lib64" / "libms_tools_ext.so")
    return directory


def environment(home, preload=None):
    preloads = [os.environ.get("LD_PRELOAD", ""), str(preload or "")]
    return {
        "ASCEND_HOME_PATH": str(home),
        "LD_LIBRARY_PATH": f"{home}/lib64:{os.environ.get('LD_LIBRARY_PATH', '')}",
        "LD_PRELOAD": ":".join(filter(None, preloads)),
    }


def test_tools_hear_of_allocations_and_frees(run_both, home):
    # Its presence says that a tool listens.
    hook = shared_library(os.devnull, home / "libascend_kernel_hook.so")
    stock, subject = run_both(
        "tools:events", fresh=True, env=environment(home, hook), home=str(home)
    )
    kinds = [event[0] for event in subject.value]
    assert kinds == ["heap", "block"] * 2 + ["heap", "gone", "heap", "block"] + ["heap", "gone"] * 2
    assert subject.value == stock.value


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
    library = shared_library(NATIVE / "counting.c", tmp_path / "libcounting.so")
    preloads = filter(None, [os.environ.get("LD_PRELOAD", ""), str(library)])
    stock, subject = run_both(
        "tools:counted", fresh=True, env=env | {"LD_PRELOAD": ":".join(preloads)},
        library=str(library),
    )
    for fixed, physical, _ in (stock.value, subject.value):
        assert (fixed > 0, physical > 0) == (not env, bool(env))
    if not env:
        assert subject.value == stock.value
