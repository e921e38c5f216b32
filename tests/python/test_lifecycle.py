"""The end of processes, forks, and devices that are lost or stopped on the way."""

import pytest

from environments import SLOW

#: What a process that ends in an orderly way does not say.
BAD_WORDS = ["Segmentation", "terminate called", "Fatal Python error", "core dumped", "panicked",
             "invalid device pointer", "npualloc: internal"]
VIRTUAL = {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}


def is_orderly(ended, status=0):
    assert ended.status == status, f"status {ended.status}\n{ended.output}"
    for word in BAD_WORDS:
        assert word not in ended.output, ended.output


@pytest.fixture
def leave(processes, subject):
    def leave(scenario, **options):
        return processes.leave(f"lifecycle:{scenario}", subject, **options)

    return leave


@pytest.mark.parametrize("env", [{}, VIRTUAL, SLOW], ids=["fixed", "virtual", "slow"])
@pytest.mark.parametrize(
    "scenario",
    ["alive", "late", "cycle", "outliving", "modules_cleared", "pool", "at_exit"],
)
def test_a_process_ends(leave, scenario, env):
    ended = leave(scenario, env=env)
    is_orderly(ended)
    if scenario == "at_exit":
        assert "handler done" in ended.output


#: What CPython before 3.14 does to daemon threads that are in C++ when the interpreter ends: the
#: stock allocator's processes end that way too.
UNWOUND = "terminate called without an active exception"
#: What the second of two such threads adds, or says instead.
UNWOUND_TOO = "terminate called recursively"


@pytest.mark.parametrize("env", [{}, VIRTUAL], ids=["fixed", "virtual"])
def test_a_process_ends_under_its_daemon_threads(leave, env):
    ended = leave("daemon", env=env)
    if ended.status != 0:
        said = set(ended.output.split("\n")) - {""}
        assert ended.status == -6
        assert said and said <= {UNWOUND, UNWOUND_TOO}, ended.output


@pytest.mark.parametrize("scenario", ["reset", "finalized"])
def test_a_runtime_that_is_gone_first(processes, subject, scenario):
    """Freeing memory of a device that was reset is the driver's to complain of, as with stock."""
    stock = processes.leave(f"lifecycle:{scenario}", "stock")
    ended = processes.leave(f"lifecycle:{scenario}", subject)
    assert (ended.status, ended.value) == (stock.status, stock.value), ended.output
    is_orderly(ended)


@pytest.mark.parametrize(("how", "status"), [("exit", 3), ("_exit", 4), ("signal", -15)])
def test_the_programs_own_status_is_kept(leave, how, status):
    is_orderly(leave("status", how=how), status)


def test_forked_children_are_told_as_by_stock(run_both):
    stock, subject = run_both("lifecycle:forked", by="multiprocessing")
    children = subject.value["children"]
    assert children == stock.value["children"]
    for name in ("allocates", "initialises"):
        assert children[name][0] == 0
        assert "Cannot re-initialize NPU in forked subprocess" in children[name][1]
    assert children["nothing"] == [0, "nothing"]
    assert subject.value["unchanged"]
    assert subject.value["then"] == stock.value["then"]


def test_children_that_torch_npu_knows_nothing_of_do_as_with_stock(run_both):
    stock, subject = run_both("lifecycle:forked", by="system")
    assert subject.value == stock.value


def test_a_forked_child_ends(processes, subject):
    stock = processes.leave("lifecycle:forked_exit", "stock")
    ended = processes.leave("lifecycle:forked_exit", subject)
    assert ended.status == stock.status == 0, ended.output
    assert ended.value == stock.value


#: ACL_ERROR_RT_DRV_INTERNAL_ERROR.
LOST = 507899


@pytest.mark.parametrize("call", [1, 3, 8, 21, 55])
@pytest.mark.parametrize("env", [{}, VIRTUAL], ids=["fixed", "virtual"])
def test_a_lost_device_is_an_error_and_no_more(processes, subject, request, env, call):
    plugin = request.config.getoption("--plugin") if subject == "npualloc" else None
    arguments = {"plugin": plugin, "call": call, "code": LOST}
    ended = processes.leave("lifecycle:lost", subject, env=env, heal=False, **arguments)
    is_orderly(ended)
    errors = [line for line in ended.value["errors"] if line]
    assert errors
    assert ended.value.get("broken") is None
    # Nothing but the device's own failure is told, or that torch_npu's task queue has ended with it.
    assert all(str(LOST) in line or "Inner error" in line for line in errors), errors


#: The task queue does not survive an operator that fails: torch_npu's affair.
WITHOUT_QUEUE = {"TASK_QUEUE_ENABLE": "0"}


@pytest.mark.parametrize("call", [1, 9, 50])
@pytest.mark.parametrize("env", [{}, VIRTUAL], ids=["fixed", "virtual"])
def test_a_device_that_comes_back_works(processes, subject, request, env, call):
    plugin = request.config.getoption("--plugin") if subject == "npualloc" else None
    arguments = {"plugin": plugin, "call": call, "code": LOST}
    env = {**env, **WITHOUT_QUEUE}
    ended = processes.leave("lifecycle:lost", subject, env=env, heal=True, **arguments)
    is_orderly(ended)
    assert ended.value.get("broken") is None
    assert ended.value["after"] is None, ended.value
    assert ended.value["end"]["allocated_bytes.all.current"] == 0
    assert ended.value["imbalances"] == []


def test_a_device_is_stopped_again_and_again(run_both):
    stock, subject = run_both("lifecycle:stopped", env=SLOW, provokes="its work is aborted")
    assert subject.value["kept"]
    assert len({str(stage) for stage in subject.value["stages"]}) == 1
    assert subject.value == stock.value
