"""Hazards and leaks on the simulated device fail a scenario."""

import pytest

from harness.device_reports import DeviceMisuse

SLOW = {"CANN_SIM_KERNEL_NS": "1000000000", "TASK_QUEUE_ENABLE": "0"}


@pytest.mark.parametrize(
    "scenario, said",
    [
        ("bad_free", "free of an unknown address"),
        ("free_under_work", "free under pending work"),
        ("leak", "of which the allocator knows"),
    ],
)
def test_misuse_is_reported(processes, subject, scenario, said):
    if subject == "stock":
        pytest.skip("what the stock allocator does is told, not failed")
    with pytest.raises(DeviceMisuse, match=said):
        processes.run(f"misuse:{scenario}", subject, env=SLOW)


def test_misuse_can_be_meant(run):
    run("misuse:bad_free", provokes="shows that a scenario may mean to", env=SLOW)
