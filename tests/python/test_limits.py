"""Out of memory, the memory fraction, giving the cache back."""

import re

import pytest

from compare import same_error
from sizes import GIB, MIB, rounded

SMALL = {"CANN_SIM_CAPACITY": str(GIB)}


def test_out_of_memory_says_where_the_memory_is(run):
    value = run("limits:out_of_memory", size=2 * GIB, env=SMALL).value
    error = value["error"]
    assert error["types"][0] == "torch.OutOfMemoryError"
    assert error["line"].startswith(
        "NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 1024.00 MiB total capacity; "
    ) or error["line"].startswith(
        "NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 1.00 GiB total capacity; "
    )
    assert "reserved in total by PyTorch)" in error["line"]


def test_out_of_memory_changes_nothing_that_is_in_use(run):
    value = run("limits:out_of_memory", size=2 * GIB, env=SMALL).value
    assert value["after"]["num_ooms"] == 1
    for name in ("allocated_bytes.all.current", "reserved_bytes.all.current"):
        assert value["after"][name] == value["before"][name]
    in_use = sum(map(rounded, (100 * MIB, 700, 10 * MIB)))
    assert value["then"]["npu"]["allocated_bytes.all.current"] == in_use


@pytest.mark.parametrize("size", [2 * GIB, 1000 * MIB])
def test_out_of_memory_is_stocks(run_both, size):
    stock, subject = run_both("limits:out_of_memory", size=size, env=SMALL)
    same_error(stock.value["error"], subject.value["error"])
    assert subject.value["after"] == stock.value["after"]
    assert subject.value["then"] == stock.value["then"]


def test_out_of_memory_is_caught_by_its_classes(run):
    assert run("limits:is_caught_as", size=2 * GIB, env=SMALL).value == [True, True]


def test_cached_memory_is_given_back_before_failing(run_both):
    stock, subject = run_both("limits:retry_after_freeing_cache", env=SMALL)
    value = subject.value
    assert value["cached"]["reserved_bytes.all.current"] > 700 * MIB
    assert value["after"]["npu"]["num_alloc_retries"] == 1
    assert value["after"]["npu"]["num_ooms"] == 0
    assert value == stock.value


def test_a_full_device_recovers(run_both):
    stock, subject = run_both("limits:fill_and_free", size=50 * MIB, env=SMALL)
    value = subject.value
    # 52 MiB segments in 1 GiB.
    assert [one["count"] for one in value["rounds"]] == [19, 19, 19]
    assert [one["num_ooms"] for one in value["rounds"]] == [1, 2, 3]
    assert value["end"]["npu"]["reserved_bytes.all.current"] == 0
    assert value == stock.value


def test_empty_cache_gives_free_segments_back(run_both):
    stock, subject = run_both("limits:empty_cache")
    before, after, end = (stage["npu"] for stage in subject.value["stages"])
    given = before["reserved_bytes.all.current"] - after["reserved_bytes.all.current"]
    assert subject.value["grown"] == given > 0
    assert after["reserved_bytes.all.current"] == 20 * MIB
    assert end["reserved_bytes.all.current"] == 0
    assert subject.value == stock.value


def test_empty_cache_on_an_unused_device(run_both):
    stock, subject = run_both("limits:empty_cache_before_use")
    assert subject.value == stock.value


def test_a_fraction_limits_the_process(run_both):
    stock, subject = run_both("limits:fraction", part=0.5, size=600 * MIB, env=SMALL)
    value = subject.value
    assert value["error"]["types"][0] == "torch.OutOfMemoryError"
    assert "512.00 MiB allowed" in value["error"]["line"]
    assert value["read"] == 0.5
    assert (value["fits"], value["lifted"]) == (150 * MIB, 600 * MIB)
    assert value["limited"]["num_ooms"] == 1
    same_error(stock.value["error"], value["error"])
    assert value["limited"] == stock.value["limited"]


def test_bad_fractions_are_refused_and_change_nothing(run_both):
    stock, subject = run_both("limits:bad_fractions")
    assert subject.value["fraction"] == 0.5
    assert len(subject.value["errors"]) == 10
    for name, error in subject.value["errors"].items():
        assert error is not None, name
    for name in ("allocator above", "allocator below", "allocator nan"):
        assert "invalid fraction" in subject.value["errors"][name]["line"]
    for name, error in stock.value["errors"].items():
        same_error(error, subject.value["errors"][name])


def test_absurd_sizes_are_refused(run_both):
    stock, subject = run_both("limits:absurd")
    for name in ("tensor", "raw", "more", "big"):
        same_error(stock.value[name], subject.value[name])
        assert subject.value[name]["types"][0] == "torch.OutOfMemoryError", name
    assert "more than 1EB" in subject.value["tensor"]["line"]
    # Written to the log, too, if nobody shows the exceptions.
    for outcome in (stock, subject):
        assert "Tried to allocate more than 1EB" in outcome.output
    assert subject.value["npu"] == stock.value["npu"]


#: What scripts that recover from faults look for, by the runtime's code.
FAULTS = {
    107022: "FORCE STOP",
    507054: "HBM MULTI BIT ECC ERROR.",
    507055: "SUSPECT MEM ERROR",
    507056: "HCCS LINK ERROR",
    507057: "SUSPECT REMOTE ERROR",
    507904: "HCCL OP RETRY FAILED",
}


def test_faults_of_the_device_are_named(run_both):
    stock, subject = run_both("limits:device_faults", codes=list(FAULTS))
    for theirs, ours, (code, words) in zip(stock.value["texts"], subject.value["texts"], FAULTS.items()):
        assert words in theirs["line"], code
        assert words in ours["line"], code
        assert ours["types"] == theirs["types"], code
        said = [one["line"].split("NPU function error: ")[1] for one in (ours, theirs)]
        assert said[0] == said[1], code
        assert ("time is" in ours["message"]) == (code == 507054)
    assert subject.value["then"] == stock.value["then"]


@pytest.mark.parametrize(
    ("call", "function", "virtual"),
    [("aclrtMalloc", "aclrtMallocAlign32", False), ("aclrtMallocPhysical", "aclrtMallocPhysical", True),
     ("aclrtMapMem", "aclrtMapMem", True)],
)
def test_a_failure_names_the_runtimes_function(processes, subject, call, function, virtual):
    """The stock allocator crashes where mapping fails, and names a variable for aclrtMalloc."""
    if subject == "stock" and function != "aclrtMallocPhysical":
        pytest.skip("the stock allocator crashes there, or names a variable")
    env = {"PYTORCH_NPU_ALLOC_CONF": f"expandable_segments:{virtual}"}
    tried = [subject] if function != "aclrtMallocPhysical" else [subject, "stock"]
    for allocator in tried:
        error = processes.run("limits:failing_call", allocator, env=env, call=call).value
        assert error["line"].endswith(f"NPU function error: {function}, error code is 507899"), allocator


def test_a_function_that_the_runtime_lacks_is_named(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator only warns, and gives no memory out")
    error = run("limits:failing_call", call="aclrtMalloc", code=207000).value
    assert error["line"].endswith("aclrtMallocAlign32 failed, error code is 207000")


@pytest.mark.parametrize("engine", ["", "expandable_segments:True,"])
def test_cached_memory_goes_back_before_a_request_is_refused(run_both, engine):
    conf = f"{engine}throw_on_npumalloc_oom:True,per_process_memory_fraction:0.5"
    env = SMALL | {"PYTORCH_NPU_ALLOC_CONF": conf}
    stock, subject = run_both("limits:grown_then_refused", env=env)
    assert len(subject.value["served"]) == 7
    same_error(stock.value.pop("error"), subject.value.pop("error"))
    # With virtual segments memory moves without a retry.
    if engine:
        subject.value["num_alloc_retries"] = stock.value["num_alloc_retries"]
    assert subject.value == stock.value


@pytest.mark.parametrize("off", ["0", "1"])
def test_a_want_of_large_pages_is_a_warning_and_no_exception(run_both, off):
    env = {"PYTORCH_NPU_ALLOC_CONF": "page_size:1g", "TORCH_NPU_WARNING_DISABLE": off}
    stock, subject = run_both("limits:without_pages_of_1g", env=env)
    assert subject.value == stock.value == [[3 * MIB, GIB], 3 * GIB]
    for outcome in (stock, subject):
        said = "Warning: The malloc 1G large-page physical memory failed, so malloc 2M page memory."
        assert outcome.output.count(said) == (off == "0")


def test_a_fault_of_memory_is_named(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator names a variable")
    (error,) = run("limits:device_faults", codes=[507053]).value["texts"]
    assert "UCE ERROR, error code is 507053" in error["line"]


def test_a_fault_of_links_is_named_as_on_the_part(run_both):
    stock, subject = run_both("limits:device_faults", codes=[507056], env={"CANN_SIM_SOC": "Ascend950PR_9589"})
    for outcome in (stock, subject):
        assert "UB LINK ERROR, error code is 507056" in outcome.value["texts"][0]["line"]


#: Below the text: when, where, and what kind of error.
SUFFIX = re.compile(
    r"\[ERROR\] \d{4}-\d\d-\d\d-\d\d:\d\d:\d\d \(PID:\d+, Device:(-?\d+), RankID:(-?\d+)\) (ERR\d{5} .+)"
)


@pytest.mark.parametrize("env", [{}, {"TORCH_NPU_COMPACT_ERROR_OUTPUT": "1"}], ids=["usual", "compact"])
def test_errors_end_with_a_code(run_both, env):
    stock, subject = run_both("limits:told_with_codes", env=env)
    kinds = {"fraction": "ERR00001 PTA invalid parameter", "device": "ERR00001 PTA invalid parameter",
             "pool": "ERR00008 PTA resource not found"}
    for outcome in (stock, subject):
        for name, kind in kinds.items():
            found = [SUFFIX.fullmatch(line).groups() for line in outcome.value[name]]
            assert found == ([] if env else [("1", "-1", kind)]), name


def test_a_refused_call_for_a_pool_ends_with_a_code(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator's error has none")
    (line,) = run("limits:told_with_codes").value["release"]
    assert SUFFIX.fullmatch(line).groups() == ("1", "-1", "ERR00001 PTA invalid parameter")
