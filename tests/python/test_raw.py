"""Memory by address."""

import pytest

from compare import same_error
from sizes import MIB, rounded


def test_memory_without_a_tensor_is_counted(run):
    value = run("raw:alloc_and_delete").value
    assert value["aligned"]
    assert value["same"]
    current = [stage["npu"]["allocated_bytes.all.current"] for stage in value["stages"]]
    assert current == [0, rounded(3 * MIB), 0, rounded(3 * MIB)]


def test_the_named_stream_owns_the_memory(run):
    value = run("raw:on_a_stream").value
    assert (value["other"], value["same"]) == (False, True)


@pytest.mark.parametrize("scenario", ["alloc_and_delete", "on_a_stream", "nothing"])
def test_the_same_as_stock(run_both, scenario):
    stock, subject = run_both(f"raw:{scenario}")
    assert subject.value == stock.value


def test_unknown_pointers_are_refused_and_change_nothing(run_both):
    stock, subject = run_both("raw:unknown_pointers")
    for name, ours in subject.value["errors"].items():
        assert ours["error"] is not None, name
        assert ours["unchanged"], name
        same_error(stock.value["errors"][name]["error"], ours["error"])
    for name in ("unknown", "inside", "twice"):
        assert "invalid device pointer" in subject.value["errors"][name]["error"]["line"]
    assert subject.value["stats"] == stock.value["stats"]


def test_a_stream_that_is_none_is_refused(run_both):
    stock, subject = run_both("raw:bad_stream")
    assert subject.value["unchanged"]
    same_error(stock.value["error"], subject.value["error"])
