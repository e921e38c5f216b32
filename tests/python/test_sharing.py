"""Memory shared with other processes; HCCL's zero-copy memory."""

import pytest

from compare import without_place
from environments import BACKED, SMALL, VIRTUAL
from sizes import MIB

BOTH = pytest.mark.parametrize("env", [{}, VIRTUAL], ids=["fixed", "virtual"])
CLOSING = pytest.mark.parametrize(
    ("env", "call"), [({}, "aclrtIpcMemClose"), (VIRTUAL, "aclrtUnmapMem")], ids=["key", "pages"]
)


@BOTH
def test_handles_have_stocks_form(run_both, env):
    stock, subject = run_both("sharing:texts", env=env)
    kind = "0165" if env else "0163"
    assert [row[0] for row in subject.value["rows"]] == 4 * [kind]
    assert all(row[2] and row[3] for row in subject.value["rows"])
    assert subject.value == stock.value


def test_shared_memory_is_closed_before_it_is_freed(run_both):
    stock, subject = run_both("sharing:withdrawn")
    assert [row[0] for row in subject.value] == [0, 1]
    assert subject.value == stock.value


def test_handles_of_virtual_segments_list_pages(run_both):
    stock, subject = run_both("sharing:pages", env=VIRTUAL)
    assert subject.value["length"] and subject.value["covers"]
    assert subject.value == stock.value


@BOTH
def test_memory_is_open_once_and_closed_with_the_last(run_both, env):
    stock, subject = run_both("sharing:opened", env=env)
    assert subject.value["same"] and subject.value["somewhere"]
    assert subject.value == stock.value


def test_a_key_that_is_not_closed_is_no_error_of_the_free(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator keeps the memory")
    outcome = run("sharing:withdrawn", env={"CANN_SIM_FAULTS": "aclrtIpcMemClose:nth=1,code=507899"})
    assert [row[1] for row in outcome.value] == [1, 2]
    assert "closing shared memory failed: " in outcome.output


@BOTH
def test_texts_of_older_versions_are_understood(run_both, env):
    stock, subject = run_both("sharing:older", env=env)
    assert subject.value == [True] * (1 if env else 2)
    assert subject.value == stock.value


@BOTH
def test_memory_of_another_device_is_opened_and_closed(run_both, env):
    stock, subject = run_both("sharing:opened_elsewhere", env=env)
    assert subject.value == {"somewhere": True, "waits": [0, 1]}
    assert subject.value == stock.value


def test_an_opening_that_fails_leaves_nothing(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator keeps what it had opened")
    value = run("sharing:opened_in_vain", env=VIRTUAL).value
    assert value["error"]["line"].endswith("aclrtMapMem, error code is 507899")
    assert value["left"] == [0, 0] and value["somewhere"]


@CLOSING
def test_a_process_outlives_memory_that_can_not_be_closed(run, subject, env, call):
    if subject == "stock":
        pytest.skip("an exception leaves the stock allocator's deleter, which ends the process")
    faults = f"{call}:nth=1,code=507899"
    outcome = run("sharing:opened", reopen=False, faults=faults, env=env)
    assert outcome.value["same"] and outcome.value["somewhere"]
    assert "closing another process's memory failed: " in outcome.output and call in outcome.output


def test_the_first_failure_of_a_closing_is_told(run, subject):
    if subject == "stock":
        pytest.skip("an exception leaves the stock allocator's deleter, which ends the process")
    faults = "aclrtUnmapMem:nth=1,code=507899;aclrtReleaseMemAddress:nth=1,code=507018"
    outcome = run("sharing:opened", reopen=False, faults=faults, env=VIRTUAL)
    assert "NPU function error: aclrtUnmapMem, " in outcome.output


def test_memory_that_is_asleep_is_not_shared(run, subject, request):
    if subject == "stock":
        pytest.skip("the stock allocator's memory does not sleep")
    value = run("sharing:asleep", plugin=request.config.getoption("--plugin"), env=VIRTUAL).value
    assert "asleep" in value["error"]["line"] and value["awake"] > 0


@CLOSING
def test_memory_opened_while_it_is_closed_stays(run, subject, env, call):
    if subject == "stock":
        pytest.skip("stock opens what it closes: the driver refuses, or maps it twice")
    value = run("sharing:reopened", call=call, env=env).value
    assert value["same"] and value["before"] == 0 and value["after"] > 0


@BOTH
def test_bad_handles_are_refused_and_change_nothing(run_both, env):
    stock, subject = run_both("sharing:tampered", env=env)
    assert len(subject.value["rows"]) == 18
    for name, row in subject.value["rows"].items():
        assert row["error"] is not None and row["unchanged"], name
        assert row["error"]["types"] == ["c10::Error"], name
    future = stock.value["rows"]["future"]["error"]["line"]
    assert "future version" in future
    for name in ("future", "far future", "noise"):
        assert subject.value["rows"][name]["error"]["line"] == future, name
    cut = "does not have the length"
    for name in ("empty", "version alone", "cut off", "cut in half", "key cut off",
                 "pages cut off", "odd page size", "too long"):
        line = subject.value["rows"][name]["error"]["line"]
        assert cut in line or "error code is" in line, (name, line)
    for name in ("kind", "no pages", "too many pages", "no page size", "vast page size"):
        assert "illformed" in subject.value["rows"][name]["error"]["line"], name
    # What names memory that is not there is the driver's to refuse, with both.
    for name in ("unknown key", "unknown pages"):
        for rows in (stock.value["rows"], subject.value["rows"]):
            assert "error code is 107000" in rows[name]["error"]["line"], name
    assert cut in subject.value["rows"]["too long"]["error"]["line"]
    assert subject.value["works"]


@BOTH
def test_tensors_reach_other_processes(run_both, env):
    stock, subject = run_both("sharing:tensors", env=env | BACKED)
    for value in (stock.value, subject.value):
        assert len(value["got"]) == 5
        assert value["got"] == value["here"]
        assert value["exit"] == 0


def test_hccl_knows_the_pages_of_virtual_segments(run_both):
    stock, subject = run_both("sharing:zero_copy", env=VIRTUAL)
    value = subject.value
    assert value["before"] == []
    assert value["known"]["known"] == {"old": True}
    assert value["grown"]["known"] == {"old": True, "new": True}
    assert not value["end"]["any"] and value["end"]["ranges"] == 0
    for name in ("before", "known", "grown", "end", "asked"):
        assert value[name] == stock.value[name], name
    for one in (value, stock.value):
        assert "Build HCCL server group redundancy." in one["twice"]["line"]


def test_a_handle_that_is_given_again_is_shared_anew(run_both):
    for outcome in run_both("sharing:shared_anew", env=VIRTUAL | {"CANN_SIM_HANDLES": "again"}):
        named, old = outcome.value
        assert named > 0 and old == 0


def test_hccl_is_told_of_what_is_there(run_both):
    stock, subject = run_both("sharing:gone_before", env=VIRTUAL)
    assert subject.value["none"] == [] and subject.value["other"]["known"] == {"kept": True}
    assert subject.value == stock.value


def test_memory_goes_though_hccl_does_not_forget_it(run, subject):
    if subject == "stock":
        pytest.skip("HCCL's refusal is an exception there")
    outcome = run("sharing:forgets_nothing", env=VIRTUAL)
    assert outcome.value["error"] is None and outcome.value["reserved_bytes.all.current"] == 0
    assert "HcclCommDeactivateCommMemory failed, error code is 7" in outcome.output


def test_an_hccl_without_zero_copy_is_an_error(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator says nothing")
    value = run("sharing:older_hccl", env=VIRTUAL).value
    assert "Failed to find function HcclCommSetMemoryRange" in value["error"]["line"]
    assert value["kept"]


def test_memory_moves_while_hccl_knows_it(run_both):
    env = VIRTUAL | SMALL | {"TORCH_HCCL_ZERO_COPY": "1"}
    stock, subject = run_both("sharing:moved", env=env)
    assert subject.value == stock.value == [[None, True], [None, True]]


def test_hccls_refusals_are_errors_and_change_nothing(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator keeps a communicator that refused")
    value = run("sharing:failing_hccl", env=VIRTUAL).value
    for name in ("error", "growth"):
        assert "error code is 7" in without_place(value[name]["line"]), name
    assert value["unchanged"] and value["again"]


def test_a_range_that_hccl_refuses_goes_back(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator keeps it")
    value = run("sharing:refused_range", env=VIRTUAL).value
    assert "error code is 7" in without_place(value["error"]["line"])
    assert value["kept"] == 0


@pytest.mark.parametrize("call, mapped", [("aclrtUnmapMem", True), ("aclrtReleaseMemAddress", False)])
def test_hccl_knows_what_the_driver_keeps(run, subject, call, mapped):
    if subject == "stock":
        pytest.skip("HCCL has forgotten part of it there, or the process ends")
    start, first, second = run("sharing:driver_keeps", fault=f"{call}:every=1,code=507899", env=VIRTUAL).value
    assert start[1] > 40 * MIB and start[2] == 1
    assert first[1:] == [start[1] if mapped else 0, 1]
    assert second == [None, 0, 0]


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_refusal_half_way_leaves_hccl_nothing(run, subject, after):
    if subject == "stock":
        pytest.skip("the stock allocator keeps a communicator that refused")
    value = run("sharing:half_told", after=after, env=VIRTUAL).value
    assert "error code is 7" in without_place(value["error"]["line"])
    assert not value["left"]["any"] and value["left"]["ranges"] == 0
    assert value["known"] == {"it": True}


def test_no_communicator_is_an_error(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator crashes")
    value = run("sharing:no_communicator", env=VIRTUAL).value
    assert "hcclComm is null." in value["null"]["line"]
    assert "Invalid device argument 99" in value["device"]["line"]
