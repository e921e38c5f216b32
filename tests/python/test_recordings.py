"""Recordings that the environment asks for."""

import gzip

import pytest

from environments import BACKED
from sizes import MIB


@pytest.fixture
def record(processes, subject, tmp_path):
    """Runs a scenario under a recording with stacks: its value, and the lines of the file."""
    if subject == "stock":
        pytest.skip("the stock allocator does not record")

    def record(scenario, stacks="1", env=None):
        path = tmp_path / "t.gz"
        env = (env or {}) | {"NPUALLOC_TRACE": str(path), "NPUALLOC_TRACE_STACKS": stacks}
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


def test_a_block_that_comes_back_is_recorded_as_it_was(record):
    _, lines = record("restored_in_place")
    made = [line.split() for line in lines if line.startswith("a ")]
    made = [(int(size) - 41 * MIB, stream) for _, _, size, stream, *_ in made if int(size) > 41 * MIB]
    assert [size for size, _ in made] == [1, 2, 1]
    # The first stream is that of another block.
    assert [stream for _, stream in made] == ["1"] * 3


@pytest.mark.parametrize("words", ["", "redzones"])
def test_memory_that_torch_npu_takes_back_is_recorded(record, words):
    _, lines = record("taken_back", env=BACKED | {"NPUALLOC_DEBUG": words})
    steps = [line.split()[0] for line in lines if line[:2] in ("a ", "f ", "e", "s ")]
    # The allocator's own waits are not the program's. At the end torch_npu waits, and empties the cache.
    assert steps == ["a", "f", "e", "a", "s", "e"]


def test_recordings_begin_and_end_where_the_program_has_them(run, subject, request, tmp_path):
    if subject == "stock":
        pytest.skip("the stock allocator does not record")
    plugin = request.config.getoption("--plugin")
    early, *said, full = run("recordings:by_hand", plugin=plugin, directory=str(tmp_path)).value
    assert "set NPUALLOC_TRACE instead" in early
    assert said == [None] * 5 and "the trace is incomplete" in full
    for name in ("first.gz", "second.gz"):
        lines = gzip.decompress((tmp_path / name).read_bytes()).decode().splitlines()
        assert sizes_of(lines) == [5 * MIB]
        # The wait that failed is none.
        assert [line for line in lines if line.startswith("s ")] == ["s 0", "s *"]
        assert any(line.startswith("k ") for line in lines)


def test_empty_variables_ask_for_nothing(record, run):
    _, lines = record("taken_back", stacks="")
    assert sizes_of(lines) and not any(line.startswith("k ") for line in lines)
    assert run("recordings:taken_back", env={"NPUALLOC_TRACE": ""}).output == ""
