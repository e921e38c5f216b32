"""Memory while a graph is captured."""

import pytest

from environments import SMALL


@pytest.mark.parametrize("device", [0, 1])
def test_a_capture_on_a_full_device_goes_on(run_both, device):
    stock, subject = run_both("captures:full", env=SMALL, device=device)
    assert subject.value["error"][0] == "torch.OutOfMemoryError"
    assert subject.value == stock.value
