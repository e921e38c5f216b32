"""Another device than the first, and one that is not the current one."""

import pytest

from environments import SLOW
from sizes import MIB, rounded


def test_memory_names_its_device(run_both):
    stock, subject = run_both("other_devices:named")
    assert subject.value == {"nothing": "npu:1", "restored": [1]}
    assert subject.value == stock.value


def test_cleaned_events_hold_nothing_on_any_device(run_both):
    stock, subject = run_both("other_devices:cleaned", env=SLOW)
    assert [[one["active_bytes.all.current"] for one in row] for row in subject.value] == [
        [rounded(30 * MIB)] * 2, [0, 0]]
    assert subject.value == stock.value


def test_a_pool_is_in_use_on_two_devices(run_both):
    stock, subject = run_both("other_devices:scopes")
    assert subject.value == [None, None, [[0, 32 * MIB], [1, 42 * MIB]], None, None]
    assert subject.value == stock.value


def test_blocks_of_one_device_are_marked(run_both):
    stock, subject = run_both("other_devices:marked")
    assert subject.value == {"rows": [[1, 0], [0, 0]], "safe": [1, 1], "made safe": [None, None]}
    assert subject.value == stock.value


def test_a_share_makes_its_device_current(run_both):
    stock, subject = run_both("other_devices:limited")
    assert subject.value == stock.value


def test_the_number_of_devices_is_no_device(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator crashes")
    value = run("other_devices:one_too_many").value
    for line in value["lines"]:
        assert f"Invalid device argument {value['count']}" in line


def test_the_cache_of_a_device_that_nobody_used_is_left_alone(run):
    assert run("other_devices:emptied").value == [0, 0, 0]


def test_trackers_are_told_the_device(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator names device 0 for every device")
    assert set(run("other_devices:told").value) == {"1"}
