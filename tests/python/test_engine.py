"""The engine that is chosen where `expandable_segments` is not given."""

import pytest

from compare import of_any_engine
from environments import BACKED, SLOW, SMALL, VIRTUAL
from sizes import MIB

#: As users have it: the tests' own default is fixed segments, as stock's.
PROBE = {"NPUALLOC_DEFAULT_ENGINE": "probe"}
FIXED = {"NPUALLOC_DEFAULT_ENGINE": "fixed"}
CONF = "PYTORCH_NPU_ALLOC_CONF"
COUNTS = ["allocated_bytes", "active_bytes", "requested_bytes"]


@pytest.fixture(autouse=True)
def npualloc_only(subject):
    if subject == "stock":
        pytest.skip("the stock allocator does not choose")


def check_counts(value, stock):
    for name in COUNTS:
        key = name + ".all.current"
        assert value["full"][key] == stock["full"][key], key
    assert set(value["end"].values()) == {0}
    assert value["taken"] == 0


def test_virtual_segments_where_the_driver_maps_memory(run_both):
    stock, subject = run_both("engine:kinds", env=PROBE)
    # Under small, medium and large blocks.
    assert len(subject.value["expandable"]) == 3
    assert all(subject.value["expandable"])
    assert not any(stock.value["expandable"])
    check_counts(subject.value, stock.value)


@pytest.mark.parametrize(
    "call", ["aclrtReserveMemAddress", "aclrtMallocPhysical", "aclrtMapMem"]
)
def test_fixed_segments_where_it_does_not(run, call):
    env = PROBE | {"CANN_SIM_FAULTS": f"{call}:every=1,code=507899"}
    value = run("engine:kinds", env=env).value
    assert value["expandable"] and not any(value["expandable"])
    assert value["end"]["allocated_bytes.all.current"] == 0


@pytest.mark.parametrize(
    "env",
    [
        {"CANN_SIM_ALIAS": "refuse"},
        {"CANN_SIM_FAULTS": "aclrtReserveMemAddress:every=1,code=207000"},
    ],
    ids=["one address for a page", "no virtual memory"],
)
def test_nothing_is_said_of_what_the_driver_can_not_do(run, env):
    told = [line for line in run("engine:kinds", env=PROBE | env).output.splitlines() if "npualloc" in line]
    assert not told


@pytest.mark.parametrize("engine", [FIXED, PROBE], ids=["fixed", "virtual"])
@pytest.mark.parametrize("alias", ["allow", "refuse"])
def test_what_the_driver_refused_is_not_left_as_the_threads_error(run, engine, alias):
    # torch_npu would tell it as the reason of an operator's failure.
    env = engine | {"CANN_SIM_ALIAS": alias, "CANN_SIM_CAPACITY": str(1024 * MIB)}
    assert run("engine:last_error", env=env).value == 0


@pytest.mark.parametrize("call", ["aclrtMemset", "aclrtMemcpy"])
def test_a_comparison_of_two_addresses_that_fails_leaves_no_error(run, call):
    env = PROBE | {"CANN_SIM_CAPACITY": str(1024 * MIB), "CANN_SIM_FAULTS": f"{call}:every=1,code=507899"}
    assert run("engine:last_error", env=env).value == 0


def test_a_function_that_the_runtime_lacks_is_named(run):
    env = VIRTUAL | {"CANN_SIM_FAULTS": "aclrtUnmapMem:from=1,code=207000"}
    outcome = run("engine:kinds", env=env, provokes="nothing is unmapped")
    assert "aclrtUnmapMem failed, error code is 207000" in outcome.error.line


@pytest.mark.parametrize(
    ("env", "expandable"),
    [
        (FIXED, False),
        (FIXED | VIRTUAL, True),
        (PROBE | {CONF: "expandable_segments:False"}, False),
        (PROBE | {CONF: "max_split_size_mb:64"}, False),
        (PROBE | {CONF: "roundup_power2_divisions:4"}, True),
        ({"NPUALLOC_DEFAULT_ENGINE": ""}, True),
    ],
    ids=["variable", "key on", "key off", "key for fixed", "other key", "empty variable"],
)
def test_settings_decide_before_the_driver(run, env, expandable):
    value = run("engine:kinds", env=env).value
    assert value["expandable"] and set(value["expandable"]) == {expandable}


@pytest.mark.parametrize(
    "scenario",
    [
        "pools:pool", "pools:graph", "mempools:uses", "mempools:emptied",
        "mempools:nested", "raw_pools:checkpoint", "virtual:frontier",
    ],
)
def test_features_work_as_where_the_key_is_given(run, scenario):
    assert run(scenario, env=PROBE).value == run(scenario, env=VIRTUAL).value


@pytest.mark.parametrize(
    "scenario",
    ["pools:pool", "pools:graph", "mempools:emptied",
     "raw_pools:checkpoint", "streams:several_streams", "streams:erased", "statistics:all_keys"],
)
def test_features_count_as_stock_does(run_both, scenario):
    stock, subject = run_both(scenario, env=PROBE | SLOW)
    assert of_any_engine(subject.value) == of_any_engine(stock.value)


@pytest.mark.parametrize("scenario", ["mempools:no_split", "raw_pools:never_split"])
def test_pools_that_are_never_split_have_segments_as_stock_does(run_both, scenario):
    stock, subject = run_both(scenario, env=PROBE)
    assert subject.value == stock.value


def test_segments_and_splits_are_not_counted(run_both):
    """A difference that is meant: docs/engines.md names it."""
    stock, subject = run_both("engine:counted", env=PROBE)
    assert all(count > 0 for count in stock.value["counts"].values())
    assert not any(subject.value["counts"].values())
    assert stock.value["actions"] == ["alloc", "segment_alloc"]
    assert subject.value["actions"] == ["alloc", "segment_map"]


def test_tensors_are_shared_between_processes(run):
    env = PROBE | BACKED
    value = run("sharing:tensors", env=env).value
    assert value["got"] == value["here"] and value["exit"] == 0


def test_memory_is_obtained_ahead_if_a_variable_says_so(run, request):
    plugin = request.config.getoption("--plugin")
    usual = run("engine:grown", plugin=plugin, env=PROBE).value
    ahead = run("engine:grown", plugin=plugin, env=PROBE | {"NPUALLOC_PREFETCH_MB": "128"}).value
    assert usual["ahead"] == 0
    assert ahead["ahead"] > 0
    assert ahead["asked"] < usual["asked"]
    assert ahead["full"] == usual["full"]
    assert ahead["taken"] == usual["taken"] == 0
    assert set(ahead["end"].values()) == {0}


@pytest.mark.parametrize(
    ("variable", "given", "expected"),
    [
        ("NPUALLOC_DEFAULT_ENGINE", "maybe", "probe or fixed"),
        ("NPUALLOC_PREFETCH_MB", "64M", "a number from 0 to 1024"),
    ],
)
def test_a_value_that_is_none_is_refused_when_the_plug_in_is_loaded(
    processes, request, variable, given, expected
):
    plugin = request.config.getoption("--plugin")
    value = processes.run("engine:refused", "stock", plugin=plugin, env={variable: given}).value
    assert f"{variable} should be {expected}" in value["error"]["cause"]
    assert given in value["error"]["cause"]


def test_what_sleeps_holds_no_memory_and_wakes_at_its_place(run, request):
    plugin = request.config.getoption("--plugin")
    value = run("engine:sleep", plugin=plugin, env=PROBE | BACKED).value
    # A page of 8 MiB and one of 2 MiB; nothing idle is left.
    assert value["slept"] == value["woken"] == value["taken awake"] == 10 * MIB
    assert value["taken asleep"] == 0
    assert "asleep" in value["refused"]["line"]
    assert value["same places"]
    assert value["contents"] == [[7], [0, 2, 4, 6, 8]]
    assert value["pool slept"] == value["pool woken"] == 48 * MIB
    assert value["outside"] == [7] and value["inside"] == [9] and value["still served"]
    assert "Could not find pool of id (77, 78)" in value["unknown"]


def test_what_fails_on_the_way_to_sleep_or_back_is_told(run, request):
    plugin = request.config.getoption("--plugin")
    value = run("engine:sleep_disturbed", plugin=plugin, env=PROBE | SMALL).value
    kept, lacked = value["told"]
    assert "aclrtUnmapMem, error code is 507899" in kept
    assert "aclrtMallocPhysical, error code is 207001" in lacked
    assert value["used"] == value["held"]
