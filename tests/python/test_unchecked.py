"""Caches emptied without a check for errors: a wait that fails is a warning."""

import pytest

from compare import same_error, without_place
from environments import SLOW, SMALL

#: With operators' workspaces apart from the allocator's memory.
ENV = SLOW | {"TASK_QUEUE_ENABLE": "2"}
WHY = "memory goes back although a wait for the work on it failed"


def test_a_failed_wait_for_the_device_counts_where_errors_are_checked(run_both):
    stock, subject = (outcome.value for outcome in run_both(
        "unchecked:emptied", env=ENV, call="aclrtSynchronizeDevice", provokes=WHY
    ))
    assert [row[1] is None for row in subject["rows"]] == [True, False]
    assert subject["rows"][0] == stock["rows"][0] == [True, None, 0, 0]
    ours, theirs = (value["rows"][1][1] for value in (subject, stock))
    assert (ours["types"], without_place(ours["line"])) == (theirs["types"], without_place(theirs["line"]))
    assert subject["reserved"] == stock["reserved"] == 0


def test_a_failed_wait_for_an_event_is_a_warning_or_an_error(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator crashes")
    outcome = run("unchecked:emptied", env=ENV, call="aclrtSynchronizeEvent", provokes=WHY)
    unchecked, checked = outcome.value["rows"]
    assert unchecked == [True, None, 0, 0]
    assert "aclrtSynchronizeEvent, error code is 507899" in checked[1]["line"]
    assert outcome.output.count("waiting for an event failed") == 1


def test_the_next_request_checks_again(run_both):
    stock, subject = (outcome.value for outcome in run_both("unchecked:requested_next", env=SMALL))
    same_error(stock["error"], subject["error"])
    assert subject["then"] == stock["then"]
