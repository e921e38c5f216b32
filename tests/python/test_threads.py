"""Many threads and the GIL: nothing blocks, nothing is lost."""

import pytest

from environments import VIRTUAL
from preload import preloaded, shared_library
from sizes import MIB


@pytest.mark.parametrize("env", [{}, VIRTUAL], ids=["fixed", "virtual"])
def test_threads_do_everything_at_once(run, env):
    left = run("threads:everything_at_once", env=env).value
    assert left == {"failures": [], "allocated": 0, "reserved": 0}


@pytest.mark.parametrize("queues", ["0", "1"], ids=["one queue", "a queue for each stream"])
@pytest.mark.parametrize("mib, pending", [(600, True), (600, False), (1000, False)])
def test_waiting_for_memory_lets_the_lock_go(run_both, tmp_path, mib, pending, queues):
    library = shared_library("compiler.c", tmp_path / "libcompiler.so")
    env = preloaded(library) | {"CANN_SIM_CAPACITY": str(1200 * MIB), "PER_STREAM_QUEUE": queues}
    stock, subject = run_both("threads:compiled", fresh=True, env=env, mib=mib, pending=pending)
    assert subject.value == stock.value == [mib * MIB]
