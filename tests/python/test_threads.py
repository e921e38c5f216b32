"""Many threads and the GIL: nothing blocks, nothing is lost."""

import pytest

from environments import VIRTUAL


@pytest.mark.parametrize("env", [{}, VIRTUAL], ids=["fixed", "virtual"])
def test_threads_do_everything_at_once(run, env):
    left = run("threads:everything_at_once", env=env).value
    assert left == {"failures": [], "allocated": 0, "reserved": 0}
