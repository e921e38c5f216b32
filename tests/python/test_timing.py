"""The wrapper that measures allocations and frees, for benchmarks."""

import pytest

from environments import SLOW


def test_what_is_measured_does_as_without_the_wrapper(processes, request, subject):
    if subject == "stock":
        pytest.skip("the wrapper is npualloc's")
    plugin = request.config.getoption("--plugin")
    value = processes.run("timing:wrapped", subject, plugin=plugin, env=SLOW).value
    assert value["wraps"] == [0, 1]
    assert value["registered"] == 1
    assert value["calls"] == [3, 6]
    assert not value["use"]["while_pending"]["reused"] and value["use"]["after"]["reused"]
