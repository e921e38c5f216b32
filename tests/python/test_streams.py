"""record_stream and the pools of streams, with work really pending."""

import pytest

from environments import SMALL, VIRTUAL
from sizes import MIB, rounded

#: A kernel takes a second on the device's clock: far longer than all calls of
#: a scenario together.
SLOW = {"CANN_SIM_KERNEL_NS": "1000000000"}
BLOCK = rounded(30 * MIB)


def test_a_block_in_use_elsewhere_is_held_until_the_work_is_done(run):
    value = run("streams:pending_use", env=SLOW).value
    assert value["pending"] == [True, True], "the work must be pending for this to show anything"
    assert value["before"]["allocated_bytes.all.current"] == BLOCK
    assert value["freed"]["allocated_bytes.all.current"] == 0
    assert value["freed"]["active_bytes.all.current"] == BLOCK
    assert not value["while_pending"]["reused"]
    assert value["while_pending"]["active_bytes.all.current"] == 2 * BLOCK
    assert value["after"]["reused"]
    assert value["after"]["active_bytes.all.current"] == 2 * BLOCK
    assert value["after"]["allocated_bytes.all.current"] == 2 * BLOCK


def test_a_use_that_is_not_recorded_holds_nothing(run):
    assert run("streams:without_record_stream", env=SLOW).value["reused"]


def test_recording_the_own_stream_holds_the_block_too(run):
    assert not run("streams:own_stream", env=SLOW).value["reused"]


def test_a_block_waits_for_the_slowest_of_several_streams(run):
    assert run("streams:several_streams", env=SLOW).value["reused"] == [False, False, True]


def test_streams_do_not_share_free_memory(run):
    value = run("streams:pools_of_streams").value
    assert not value["side"]
    assert value["own"]


def test_empty_cache_waits_for_pending_uses(run):
    value = run("streams:empty_cache_waits", env=SLOW).value
    assert value["before"]["active_bytes.all.current"] == BLOCK
    assert value["after"]["npu"]["active_bytes.all.current"] == 0
    assert value["after"]["npu"]["reserved_bytes.all.current"] == 0


def test_an_erased_use_holds_nothing(run):
    assert run("streams:erased", env=SLOW).value["reused"]


@pytest.mark.parametrize(
    "scenario",
    [
        "pending_use", "without_record_stream", "own_stream", "several_streams",
        "pools_of_streams", "empty_cache_waits", "erased",
    ],
)
def test_the_same_as_stock(run_both, scenario):
    stock, subject = run_both(f"streams:{scenario}", env=SLOW)
    assert subject.value == stock.value


@pytest.mark.parametrize("env", [{}, VIRTUAL], ids=["fixed", "virtual"])
@pytest.mark.parametrize("kind", ["foreign", "another name", "default"])
def test_streams_from_elsewhere_take_and_give_memory(run_both, kind, env):
    stock, subject = run_both("streams:external", env={**SLOW, **SMALL, **env}, kind=kind)
    assert subject.value["errors"] == [None] * 6
    assert subject.value == stock.value
