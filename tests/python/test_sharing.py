"""Memory shared with other processes; HCCL's zero-copy memory."""

import pytest

from compare import without_place
from environments import BACKED, SMALL, VIRTUAL

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


@CLOSING
def test_a_process_outlives_memory_that_can_not_be_closed(run, subject, env, call):
    if subject == "stock":
        pytest.skip("an exception leaves the stock allocator's deleter, which ends the process")
    env = env | {"CANN_SIM_FAULTS": f"{call}:nth=1,code=507899"}
    outcome = run("sharing:opened", reopen=False, env=env)
    assert outcome.value["same"] and outcome.value["somewhere"]
    assert "closing another process's memory failed: " in outcome.output and call in outcome.output


@CLOSING
def test_memory_opened_while_it_is_closed_stays(run, subject, env, call):
    if subject == "stock":
        pytest.skip("stock opens what it closes: the driver refuses, or maps it twice")
    value = run("sharing:reopened", call=call, env=env).value
    assert value["same"] and value["before"] == 0 and value["after"] > 0


@BOTH
def test_bad_handles_are_refused_and_change_nothing(run_both, env):
    stock, subject = run_both("sharing:tampered", env=env)
    assert len(subject.value["rows"]) == 17
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
    for name in ("kind", "no pages", "too many pages", "no page size"):
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
    for name in ("before", "known", "grown", "end"):
        assert value[name] == stock.value[name], name
    for one in (value, stock.value):
        assert "Build HCCL server group redundancy." in one["twice"]["line"]


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


def test_no_communicator_is_an_error(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator crashes")
    value = run("sharing:no_communicator", env=VIRTUAL).value
    assert "hcclComm is null." in value["null"]["line"]
    assert "Invalid device argument 99" in value["device"]["line"]
