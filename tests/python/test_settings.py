"""Every configuration string of the recorded runs of the stock allocator."""

import pathlib
import re

import pytest

from compare import without_place

RUNS = pathlib.Path(__file__).parents[2] / "src/config/stock_runs.tsv"


def recorded():
    """Rows of [where, text, exception or ok, code, text of the exception or values]."""
    rows = []
    for line in RUNS.read_text(encoding="utf-8").splitlines():
        fields = line.split("\t")
        if fields[0] in ("parse", "run"):
            rows.append(fields)
    return rows


@pytest.fixture(scope="module")
def outcomes(request, processes, subject):
    plugin = request.config.getoption("--plugin") if subject == "npualloc" else None
    rows = [row[:2] for row in recorded()]
    given = processes.run("settings:table", "stock", rows=rows, plugin=plugin).value
    return list(zip(recorded(), given, strict=True))


def plain(text):
    """Without what an internal assertion says of its place."""
    text = re.sub(r"^.*INTERNAL ASSERT FAILED at [^,]*, please report a bug to PyTorch\. ", "", text)
    return without_place(text).strip()


def test_every_text_is_taken_or_refused_as_stock_does(outcomes):
    assert len(outcomes) > 150
    # A text that is taken may ask for segments larger than the device, or allow no memory.
    taken = ("ok", "OutOfMemoryError")
    wrong = [
        (row[:3], given) for row, given in outcomes if (row[2] == "ok") != (given[0] in taken)
    ]
    assert not wrong
    useless = [row[1] for row, given in outcomes if given[0] == "OutOfMemoryError"]
    assert useless == ["large_segment_size_mb:99999999999999999", "per_process_memory_fraction:-0"]


def test_every_refusal_has_stocks_class_code_and_text(outcomes):
    refused = [(row, given) for row, given in outcomes if row[2] != "ok"]
    assert len(refused) > 80
    wrong = [
        (row, given) for row, given in refused
        if given[:2] != row[2:4] or plain(given[2]) != plain(row[4])
    ]
    assert not wrong


def test_every_accepted_text_leaves_a_working_allocator(outcomes):
    wrong = [(row[:2], given) for row, given in outcomes
             if given[0] == "ok" and given[1] != (3 + 25) * (1 << 20) + 4321]
    assert not wrong


@pytest.mark.parametrize("text", ["segment_size_mb:32", "large_segment_size_mb:32"])
def test_deprecated_settings_are_warned_of_as_stock_does(run_both, text):
    env = {"PYTORCH_NPU_ALLOC_CONF": text + ",expandable_segments:True",
           "TORCH_NPU_WARNING_DISABLE": "0"}
    warnings = []
    for outcome in run_both("settings:warned", env=env):
        assert outcome.value == 3 << 20
        warnings.append(sorted(
            re.sub(r"^.*?: ", "", line) for line in outcome.output.splitlines()
            if "deprecated" in line
        ))
    assert warnings[0] == warnings[1]
    assert bool(warnings[1]) == text.startswith("segment")
