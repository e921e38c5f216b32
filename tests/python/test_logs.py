"""torch_npu's logger and the device's log."""

import re

import pytest

from preload import preloaded, shared_library

#: The kind of line, when, by which process, and with stock where; then by which rank, if ranks are known.
LINE = re.compile(r"([EWIV])\d{4} \d\d:\d\d:\d\d\.\d{6} \d+(?: \S+:\d+)?\] (\[rank:\d+\] )?(.*)")


@pytest.fixture
def logged(run_both):
    """Lines of stock's and of the subject's: kind, rank, text."""

    def logged(**env):
        outcomes = run_both("logs:failed", env=env)
        assert [outcome.value for outcome in outcomes] == [None, None]
        return [[found.groups() for found in map(LINE.fullmatch, outcome.output.splitlines()) if found]
                for outcome in outcomes]

    return logged


def ours(lines):
    return [(kind, text) for kind, _, text in lines if text.startswith("npualloc: ")]


def test_every_driver_call_is_shown_where_memory_is_followed(logged, subject):
    stock, lines = logged(TORCH_NPU_LOGS="+memory", RANK="3")
    assert stock and lines
    for _, rank, _ in stock + lines:
        assert rank == "[rank:3] "
    if subject == "stock":
        return
    served = [kind for kind, text in ours(lines) if "device 0: malloc of 20971520 bytes at 0x" in text]
    refused = [kind for kind, text in ours(lines) if "malloc of 10995" in text and "error 207001" in text]
    # The failed call may be repeated.
    assert served == ["V"] and set(refused) == {"I"}
    assert ("I", "npualloc: settings: garbage_collection_threshold:0.5") in ours(lines)


def test_what_failed_or_was_set_is_shown_without_the_rest(logged, subject):
    _, lines = logged(TORCH_NPU_LOGS="memory")
    if subject == "stock":
        return
    assert {kind for kind, _ in ours(lines)} == {"I"}
    assert all(", error " in text or "settings" in text for _, text in ours(lines))


def test_the_filter_of_lines_counts(logged, subject):
    _, lines = logged(TORCH_NPU_LOGS="+memory", TORCH_NPU_LOGS_FILTER="-malloc of")
    if subject == "stock":
        return
    assert ours(lines)
    assert not any("malloc of" in text for _, text in ours(lines))


def test_without_being_asked_only_errors_are_shown(logged):
    for lines in logged():
        (line,) = [line for line in lines if "NPU out of memory" in line[2]]
        assert line[:2] == ("E", None)
        assert "Tried to allocate 1024.00 GiB" in line[2]
        assert {kind for kind, _, _ in lines} == {"E"}
        assert ours(lines) == []


def device_log(outcome):
    return [line for line in outcome.output.splitlines() if line.startswith("device log ")]


@pytest.mark.parametrize("level", ["1", "3", "4"])
def test_the_devices_log_has_the_same(run_both, subject, tmp_path, level):
    library = shared_library("app_log.c", tmp_path / "libapp_log.so")
    env = preloaded(library) | {"ASCEND_GLOBAL_LOG_LEVEL": level}
    outcomes = run_both("logs:failed", env=env)
    for outcome in outcomes:
        errors = [line for line in device_log(outcome) if "NPU out of memory" in line]
        # The number of errors is 3.
        assert [line.startswith("device log 3: [PTA]:") for line in errors] == [True] * (level != "4")
    if subject == "stock":
        return
    own = [line for line in device_log(outcomes[1]) if "npualloc: " in line]
    assert (own != []) == (level == "1")
    assert all(line.startswith("device log 1: [PTA]:npualloc: ") for line in own)
