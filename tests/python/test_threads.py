"""Many threads and the GIL: nothing blocks, nothing is lost."""

import pytest

from environments import VIRTUAL
from preload import preloaded, shared_library
from sizes import MIB


@pytest.mark.parametrize("env", [{}, VIRTUAL], ids=["fixed", "virtual"])
def test_threads_do_everything_at_once(run, env):
    left = run("threads:everything_at_once", env=env).value
    assert left == {"failures": [], "allocated": 0, "reserved": 0}


@pytest.mark.parametrize("version", ["8.2.RC1", "8.5.0"])
def test_a_thread_without_a_device_empties_the_cache(run_both, version):
    # Before 8.3 torch_npu names no default device, and a thread has none until it is set.
    env = {"CANN_SIM_CANN_VERSION": version}
    stock, subject = run_both("threads:newcomer", fresh=True, env=env)
    assert subject.value == stock.value == [0]


@pytest.mark.parametrize("queues", ["0", "1"], ids=["one queue", "a queue for each stream"])
def test_waiting_for_memory_lets_the_lock_go(run_both, tmp_path, queues):
    library = shared_library("compiler.c", tmp_path / "libcompiler.so")
    env = preloaded(library) | {"CANN_SIM_CAPACITY": str(1536 * MIB), "PER_STREAM_QUEUE": queues}
    stock, subject = run_both("threads:compiled", fresh=True, env=env, mib=1024)
    assert subject.value == stock.value == [1024 * MIB]
