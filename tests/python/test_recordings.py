"""Recordings that the environment asks for."""

import gzip

import pytest

from sizes import MIB


@pytest.fixture
def record(processes, subject, tmp_path):
    """Runs a scenario under a recording with stacks: its value, and the lines of the file."""
    if subject == "stock":
        pytest.skip("the stock allocator does not record")

    def record(scenario):
        path = tmp_path / "t.gz"
        env = {"NPUALLOC_TRACE": str(path), "NPUALLOC_TRACE_STACKS": "1"}
        ended = processes.leave(f"recordings:{scenario}", subject, env=env)
        assert ended.status == 0, ended.output
        return ended.value, gzip.decompress(path.read_bytes()).decode().splitlines()

    return record


def sizes_of(lines):
    return [int(line.split()[2]) for line in lines if line.startswith("a ")]


def test_a_thread_without_python_waits_for_no_lock(record):
    failed, lines = record("under_the_lock")
    assert failed == 0
    assert sizes_of(lines).count(5 * MIB) == 1


def test_a_forked_child_leaves_the_recording_alone(record):
    value, lines = record("forked")
    assert value["status"] == 0
    assert [sizes_of(lines).count(size * MIB) for size in (5, 7)] == [1, 1]


def test_a_pool_that_goes_back_to_a_checkpoint_is_recorded(record):
    _, lines = record("restored")
    sizes = sizes_of(lines)
    # Names of blocks are their numbers.
    told = [
        (kind, sizes[int(rest.split()[0])] // MIB if kind == "f" else int(rest.split()[1]) // MIB)
        for kind, rest in (line.split(" ", 1) for line in lines if line[:2] in ("a ", "f "))
    ]
    # Of 30, 41 and 50 MiB the first stays, the second comes back, and the third ends.
    assert [step for step in told if step[1] >= 30] == [
        ("a", 30), ("a", 41), ("f", 41), ("a", 50), ("f", 50), ("a", 41),
    ]
