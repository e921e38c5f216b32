"""What sharing memory with other processes, and HCCL's view of it, leave behind."""

import pytest

from compare import without_place
from environments import FIXED, SLOW, SMALL, VIRTUAL

BOTH = pytest.mark.parametrize("env", [FIXED, VIRTUAL], ids=["fixed", "virtual"])


def test_all_that_was_opened_is_closed(run_both):
    stock, subject = run_both("shared:closed", env=VIRTUAL)
    assert all(count > 0 for count in subject.value["opened"])
    assert subject.value["closed"] == [0, 0, 0]
    assert subject.value == stock.value


@BOTH
def test_closing_waits_for_the_device_of_the_memory(run_both, env):
    for outcome in run_both("shared:closed_elsewhere", env=env | SLOW):
        assert outcome.value == {"busy": True, "then": False, "device": 0}


@BOTH
def test_other_memory_in_the_same_place_is_shared_anew(run_both, env):
    stock, subject = run_both("shared:shared_again", env=env)
    assert subject.value["same place"] and subject.value["differ"]
    # A key is asked for once.
    assert subject.value["exports"] == ([1, 1] if env is FIXED else [0, 0])
    if env is FIXED:
        assert subject.value == stock.value


def test_a_range_that_hccl_refuses_is_given_back(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator keeps the range")
    value = run("shared:hccl_refuses_a_range", env=VIRTUAL).value
    assert "HcclCommSetMemoryRange, error code is 7" in without_place(value["error"]["line"])
    assert value["unchanged"] and value["again"]


@pytest.mark.parametrize(("call", "known"), [("aclrtUnmapMem", True), ("aclrtReleaseMemAddress", False)])
def test_hccl_knows_what_the_driver_does_not_take_back(run, subject, call, known):
    if subject == "stock":
        pytest.skip("the stock allocator forgets it, or the process ends")
    value = run("shared:stays_known", env=VIRTUAL, call=call).value
    assert value["error"]["line"].endswith(f"{call}, error code is 507899")
    assert value["failed"]["known"] == {"it": known}
    # As many as there were: a page that is no longer mapped leaves its range.
    assert value["failed"]["ranges"] == value["before"]["ranges"] > 0
    assert value["again"] is None
    assert not value["end"]["any"] and value["end"]["ranges"] == 0


def test_memory_that_moved_before_hccl_knew_it_moves_on(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator maps memory twice, which HCCL refuses")
    env = VIRTUAL | SMALL | {"TORCH_HCCL_ZERO_COPY": "1"}
    assert run("shared:moved_late", env=env).value == [None, None]
