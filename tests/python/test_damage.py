"""Uncorrectable memory errors, stop_device and restart_device."""

import pytest

from environments import SLOW
from sizes import MIB, rounded

#: Why the scenarios leave traces on the device.
BAD = "its memory is made bad and its work is aborted"
#: What torch_npu answers: nothing bad, not the allocator's, was only cached, in use. What a pool in use
#: has cached stays there.
ANSWERS = {
    "none": 0, "outside": 1, "cached": 2, "live": 3, "cached in a pool": 3, "live in a pool": 3,
}


@pytest.mark.parametrize("where", ANSWERS)
def test_damage_is_found(run_both, where):
    stock, subject = run_both("damage:checked", where=where, provokes=BAD)
    assert subject.value["found"] == ANSWERS[where]
    assert (subject.value["listed"], subject.value["again"]) == ((1, 3) if ANSWERS[where] == 3 else (0, 0))
    assert subject.value["then"] == 3 * MIB
    assert subject.value == stock.value


def test_blocks_are_marked_until_written(run_both):
    stock, subject = run_both("damage:blocks", provokes=BAD)
    assert subject.value["found"]
    assert subject.value["safe"][:4] == [[1, 1], [1, 0], [1, 1], [0, 0]]
    assert subject.value == stock.value


def test_all_blocks_that_bad_memory_reaches_into_are_marked(run_both):
    stock, subject = run_both("damage:across_blocks", provokes=BAD)
    assert subject.value == stock.value == {"found": 1, "neighbours": True, "safe": [0, 0, 1]}


def test_aligned_blocks_are_marked_too(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator finds no block where the data begin")
    value = run("damage:aligned_block", provokes=BAD).value
    assert value == {"found": 1, "safe": [1, 0, 1]}


def test_a_restarted_device_works(run_both):
    stock, subject = run_both("damage:restarted", env=SLOW, provokes=BAD)
    active = [stage["active_bytes.all.current"] for stage in subject.value["stages"]]
    assert active == [rounded(30 * MIB), 0, 0]
    assert subject.value["reused"]
    assert subject.value == stock.value


def test_wrong_devices_are_errors(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator crashes")
    value = run("damage:wrong_device").value
    assert value["still safe"]
    for name in ("check", "mark"):
        assert "Invalid device argument 99" in value[name]["line"]
