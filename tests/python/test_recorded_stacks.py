"""Stacks of Python code in recordings."""

import gzip

import pytest

from sizes import KIB


@pytest.fixture
def record(processes, subject, tmp_path):
    """Runs a scenario under a recording: its value, and the stacks of what was allocated, by size."""
    if subject == "stock":
        pytest.skip("the stock allocator does not record")

    def record(scenario):
        path = tmp_path / "t.gz"
        env = {"NPUALLOC_TRACE": str(path), "NPUALLOC_TRACE_STACKS": "1"}
        ended = processes.leave(f"recorded_stacks:{scenario}", subject, env=env)
        assert ended.status == 0, ended.output
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        known = [line[2:].split("\t") for line in lines if line.startswith("k ")]
        asked = [line.split() for line in lines if line.startswith("a ")]
        return ended.value, {int(words[2]): known[int(words[4]) - 1] for words in asked if len(words) == 5}

    return record


def test_functions_that_are_gone_keep_their_names_and_lines(record):
    count, stacks = record("short_lived")
    callers = [stacks[number * KIB][1] for number in range(1, count + 1)]
    assert callers == [f"made_{number} made.py:7" for number in range(1, count + 1)]


def test_a_deep_stack_keeps_nothing_alive(record):
    alive, stacks = record("deep")
    assert alive == 0
    assert len(stacks[5 * KIB]) == 64


def test_a_file_without_a_readable_name(record):
    error, stacks = record("nameless")
    assert error is None
    assert stacks[5 * KIB][1] == "made_1 ?:7"
