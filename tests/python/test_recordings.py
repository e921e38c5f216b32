"""Recordings that the environment asks for."""

import gzip

import pytest

from sizes import MIB


@pytest.fixture
def record(processes, subject, tmp_path):
    """Runs a scenario under a recording with stacks: its value, and the sizes in the file."""
    if subject == "stock":
        pytest.skip("the stock allocator does not record")

    def record(scenario):
        path = tmp_path / "t.gz"
        env = {"NPUALLOC_TRACE": str(path), "NPUALLOC_TRACE_STACKS": "1"}
        ended = processes.leave(f"recordings:{scenario}", subject, env=env)
        assert ended.status == 0, ended.output
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        return ended.value, [int(line.split()[2]) for line in lines if line.startswith("a ")]

    return record


def test_a_thread_without_python_waits_for_no_lock(record):
    failed, sizes = record("under_the_lock")
    assert failed == 0
    assert sizes.count(5 * MIB) == 1


def test_a_forked_child_leaves_the_recording_alone(record):
    value, sizes = record("forked")
    assert value["status"] == 0
    assert [sizes.count(size * MIB) for size in (5, 7)] == [1, 1]
