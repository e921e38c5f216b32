"""Older names of functions."""

from sizes import MIB, rounded


def test_older_names_are_stocks(run_both):
    stock, subject = run_both("interfaces:older_names")
    rows = subject.value["rows"]
    assert rows["cached"] == rows["max cached"] == 20 * MIB + 42 * MIB
    assert rows["reset allocated"]["npu"]["allocated_bytes.all.peak"] == rounded(3 * MIB)
    assert rows["nested"]["allocated_bytes"]["all"]["current"] == rounded(3 * MIB)
    assert subject.value == stock.value
