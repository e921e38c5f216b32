"""Every configuration string of the recorded runs of the stock allocator."""

import pathlib
import re

import pytest

from compare import without_place
from sizes import MIB

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


def plain_text(text):
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
        if given[:2] != row[2:4] or plain_text(given[2]) != plain_text(row[4])
    ]
    assert not wrong


def test_every_accepted_text_leaves_a_working_allocator(outcomes):
    wrong = [(row[:2], given) for row, given in outcomes
             if given[0] == "ok" and given[1] != (3 + 25) * (1 << 20) + 4321]
    assert not wrong


#: What torch.cuda.memory._set_allocator_settings and its successor accept: every key, and values that are wrong.
FOR_ALL = [
    "roundup_power2_divisions:4", "garbage_collection_threshold:0.8", "multi_stream_lazy_reclaim:True",
    "page_size:1g", "large_segment_size_mb:64", "segment_size_mb:32", "base_addr_aligned_kb:8",
    "max_split_size_mb:30", "max_non_split_rounding_mb:40", "per_process_memory_fraction:0.5",
    "release_lock_on_npumalloc:True", "throw_on_npumalloc_oom:True", "pinned_max_cached_size_mb:3",
    "pinned_reserve_segment_size_mb:1", "pin_memory_expandable_segments:False",
    "foo:1", "roundup_power2_divisions:3", "garbage_collection_threshold:2", "segment_size_mb:1",
    "per_process_memory_fraction:1.5", "large_segment_size_mb:10",
]


def test_torchs_own_settings_function_takes_every_key(run_both):
    stock, subject = (
        outcome.value for outcome in run_both("settings:for_all_accelerators", texts=FOR_ALL)
    )
    given = dict(zip(FOR_ALL, subject, strict=True))
    assert [text for text in FOR_ALL if given[text][0] is not None] == FOR_ALL[-6:]
    (_, rounded), (_, plain) = given["roundup_power2_divisions:4"], given["page_size:1g"]
    name = "allocated_bytes.all.current"
    # 5 MiB and a byte become 6, 18 with their padding 20, 33 become 40 instead of 34.
    assert rounded[name] - plain[name] > 8 * MIB
    for text, ours, theirs in zip(FOR_ALL, subject, stock, strict=True):
        if ours[0] is not None and theirs[0] is not None:
            ours[0][2], theirs[0][2] = plain_text(ours[0][2]), plain_text(theirs[0][2])
        assert ours == theirs, text


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


CUDA, HIP, ANY, NPU = (f"PYTORCH_{name}ALLOC_CONF" for name in ("CUDA_", "HIP_", "", "NPU_"))


@pytest.mark.parametrize("env", [
    {CUDA: "max_split_size_mb:64"}, {HIP: "max_split_size_mb:64"}, {CUDA: "", HIP: "max_split_size_mb:64"},
    {CUDA: "expandable_segments:True"}, {CUDA: "roundup_power2_divisions:4"}, {CUDA: "page_size:1g"},
    {CUDA: "max_split_size_mb:64", ANY: "roundup_power2_divisions:4"},
    {CUDA: "expandable_segments:True", NPU: "roundup_power2_divisions:4"},
    {CUDA: "expandable_segments:True", ANY: "expandable_segments:False"},
    {CUDA: "max_split_size_mb:64", NPU: ""}, {CUDA: "max_split_size_mb:64", NPU: "base_addr_aligned_kb:0"},
    {CUDA: "max_split_size_mb:64", NPU: "expandable_segments:True"},
    {CUDA: "expandable_segments:True", NPU: "max_split_size_mb:64"}, {CUDA: "foo:1"}, {NPU: "", ANY: ""},
    {NPU: "expandable_segments:True", ANY: "expandable_segments:False"}, {NPU: "", ANY: "expandable_segments:True"},
], ids=lambda env: ",".join(f"{name[8:-11]}={text}" for name, text in env.items()))
def test_variables_of_other_devices_count_as_in_stock(run_both, env):
    # Without a key npualloc would have virtual segments.
    env = env | {"NPUALLOC_DEFAULT_ENGINE": "fixed"}
    stock, subject = (outcome.value for outcome in run_both("settings:of_the_environment", env=env))
    assert subject == stock


def test_a_variable_of_another_device_chooses_the_engine(run):
    given = {text: run("settings:of_the_environment", env={CUDA: f"expandable_segments:{text}"}).value[0]
             for text in ("True", "False")}
    assert given == {"True": [True], "False": [False]}


def test_the_environment_is_read_when_settings_are_first_looked_at(request, processes, subject):
    plugin = request.config.getoption("--plugin") if subject == "npualloc" else None
    text = "per_process_memory_fraction:0.1"
    stock, other = (
        processes.run("settings:environment_changed_late", "stock", plugin=path, text=text).value
        for path in (None, plugin)
    )
    assert other == stock == [1.0, 3 * MIB]


def test_the_environments_own_settings_can_be_given_again(run_both):
    texts = ["max_split_size_mb:32", "max_split_size_mb:200"]
    stock, subject = run_both("settings:given_in_turn", env={NPU: texts[1]}, texts=texts)
    assert subject.value == stock.value == [False, True]


def test_settings_from_before_the_first_use_hold(run_both):
    stock, subject = run_both("settings:early", text="per_process_memory_fraction:0.25")
    assert subject.value == stock.value == [False, False, 0.25, 3 * MIB]
