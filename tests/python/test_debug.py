"""The debug mode, `NPUALLOC_DEBUG`: what it finds on a device with real pages, and what it says."""

import re

import pytest

from environments import BACKED
from sizes import MIB

VIRTUAL = {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}
MISUSE = "it writes where it should not"
#: One environment for most tests: each has a process of its own.
ALL = "redzones,poison,history"


@pytest.fixture
def debug(run, subject):
    """Runs a scenario with words of NPUALLOC_DEBUG."""
    if subject == "stock":
        pytest.skip("the stock allocator has no debug mode")

    def debug(scenario, words, env=None, provokes=None, **arguments):
        env = {**BACKED, **(env or {}), "NPUALLOC_DEBUG": words}
        return run(f"debug:{scenario}", env=env, provokes=provokes, **arguments)

    return debug


@pytest.mark.parametrize("count", [1, 4, 512])
def test_an_overrun_is_an_error_of_the_next_allocation(debug, count):
    outcome = debug("overrun", ALL, count=count)
    value = outcome.value
    message = value["first"]["message"]
    line = message.splitlines()[0]
    assert line.startswith("npualloc: memory was written past the end of a block: "
                           f"{count} bytes differ, at offsets 4000 to {3999 + count};")
    assert f"at {value['address']:#x}: 3.91 KiB requested (4000 bytes)" in message
    assert "device 0, stream 0x" in message
    # Where it came from: this scenario's own lines.
    assert "debug.py" in message and " in overrun" in message
    assert value["first"]["types"][0] == "builtins.RuntimeError"
    assert value["second"] is None
    # At once too, for programs that die of it.
    assert line in outcome.output


def test_a_stack_that_is_too_long_is_cut(debug):
    message = debug("overrun_under_long_names", ALL).value
    assert "past the end of a block: 4 bytes differ" in message and "longlong" in message
    assert " in call" not in message.split("longlong")[0]


def test_a_thread_without_python_has_a_stack(debug):
    value = debug("written_after_a_free_elsewhere", ALL).value
    assert value["failed"] == 0 and value["same"]
    (allocated,), (freed,) = (
        re.findall(rf"{what} after .*\n((?:.*\(\+0x[0-9a-f]+\).*\n?)+)", value["error"]) for what in ("allocated", "freed"))
    for stack in (allocated, freed):
        assert "libnpualloc_probe.so(+0x" in stack.splitlines()[0], stack


@pytest.mark.parametrize("env", [{}, VIRTUAL], ids=["fixed", "virtual"])
def test_a_pool_ends_while_a_finding_is_to_be_raised(debug, env):
    value = debug("overrun_before_a_pool_ends", ALL, env=env).value
    assert "past the end of a block: 4 bytes differ, at offsets 4000 to 4003;" in value["first"]
    assert value["second"] is None
    # The pool's memory went back all the same.
    assert value["kept"] == 1


def test_without_the_word_nothing_is_found(debug):
    value = debug("overrun", "", count=4).value
    assert (value["first"], value["second"]) == (None, None)


def test_an_operators_overrun_is_found(debug):
    value = debug("overrun_by_operator", ALL, provokes=MISUSE).value
    assert value["filled"]
    assert "32 bytes differ, at offsets 1024 to 1055" in value["error"]
    assert "00 00 40 40" in value["error"]


@pytest.mark.parametrize("env", [{}, VIRTUAL], ids=["fixed", "virtual"])
def test_a_write_after_a_free_is_found(debug, env):
    value = debug("after_free", ALL, env=env, write=True).value
    assert value["same"]
    message = value["error"]
    assert message.startswith("npualloc: memory was written after it was freed: 8 bytes differ, "
                              f"at offsets {MIB} to {MIB + 7};")
    assert message.count(" in after_free") == 2
    assert "allocated after" in message and "freed after" in message


@pytest.mark.parametrize("env", [{}, VIRTUAL], ids=["fixed", "virtual"])
def test_freed_memory_holds_no_numbers(debug, env):
    value = debug("after_free", ALL, env=env, write=False).value
    assert value["error"] is None
    assert value["read"] == [255] * 4


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("env", [{}, VIRTUAL], ids=["fixed", "virtual"])
def test_work_that_was_recorded_is_waited_for(debug, env, device):
    value = debug("pending", ALL, env=env, device=device).value
    assert value["requested_bytes.all.current"] == 0


# torch_npu's threads, which may not wait for what they are to do themselves.
@pytest.mark.parametrize("name, waits", [("acl_thread", False), ("release_thread", False), ("another", True)])
def test_a_check_waits_for_the_device(debug, name, waits):
    assert (debug("freed_by", ALL, name=name).value > 0) == waits


@pytest.mark.parametrize(
    ("words", "env"),
    [(ALL, {}), (ALL, VIRTUAL), ("redzones,units", {})],
    ids=["fixed", "virtual", "units"],
)
def test_a_program_without_faults_runs(debug, env, words):
    outcome = debug("training", words, env=env)
    assert outcome.value["shape"] == [1000]
    assert "npualloc:" not in outcome.output


@pytest.mark.parametrize("words", [ALL, "poison"])
def test_a_forked_process_leaves_its_parents_memory_alone(debug, words):
    value = debug("forked", words).value
    assert value == {"data": [[1.0], [1.0]], "status": 0, "then": None}


def test_a_check_looks_at_what_lives(debug, request):
    plugin = request.config.getoption("--plugin")
    value = debug("checked", ALL, plugin=plugin).value
    assert value["sound"]["found"] is None and value["sound"]["bytes"] >= 512
    assert "past the end of a block: 4 bytes differ" in value["damaged"]["found"]
    assert value["after"]["found"] is None
    assert "Invalid device argument 99" in value["none"]["found"]


@pytest.mark.parametrize("freed", [True, False], ids=["freed asleep", "freed awake"])
@pytest.mark.parametrize("words", ["redzones", ALL])
def test_sleep_is_no_damage(debug, request, words, freed):
    plugin = request.config.getoption("--plugin")
    value = debug("asleep", words, env=VIRTUAL, plugin=plugin, freed=freed).value
    for name in ("awake", "asleep", "after", "watched", "pool asleep", "end"):
        assert value[name]["found"] is None, name
    assert value["error"] is None
    # Two red zones; none of them is there any more; that of the new block.
    zone = value["watched"]["bytes"]
    assert zone > 512 and value["awake"]["bytes"] == 2 * zone
    assert value["asleep"]["bytes"] == value["after"]["bytes"] == 0
    assert value["pool asleep"]["bytes"] == value["end"]["bytes"] == zone
    # What was freed asleep gets memory again in the private pool alone, where a graph may need it.
    assert value["slept"] == value["woken"] * (2 if freed else 1) > 0
    assert value["pool slept"] == value["pool woken"] > 0


def test_memory_without_pages_is_not_checked(run, subject, request):
    if subject == "stock":
        pytest.skip("the stock allocator has no debug mode")
    plugin = request.config.getoption("--plugin")
    env = {"NPUALLOC_DEBUG": ALL}
    outcome = run("debug:checked", env=env, plugin=plugin)
    assert [outcome.value[name]["bytes"] for name in ("sound", "damaged", "after")] == [0, 0, 0]
    assert outcome.value["damaged"]["found"] is None
    assert outcome.output.count("device memory does not keep what is written to it") == 1


def test_wrong_pointers_are_told_with_their_history(debug, processes):
    stock = processes.run("debug:pointers", "stock", env={**BACKED, "NPUALLOC_DEBUG": ALL}).value
    value = debug("pointers", ALL).value
    for name in ("twice", "inside", "foreign"):
        # The first line is stock's.
        assert value[name]["line"].split(",")[0] == stock[name]["line"].split(",")[0]
        assert value[name]["types"] == stock[name]["types"]
    twice = value["twice"]["message"]
    assert "The block was freed before." in twice
    assert "caching_allocator_alloc" in twice and "caching_allocator_delete" in twice
    assert "It points 512 bytes into a live block." in value["inside"]["message"]
    assert "has not handed it out" in value["foreign"]["message"]
    assert value["stats"]["requested_bytes.all.current"] == 700


def test_unknown_words_are_errors_of_the_first_use(debug):
    value = debug("words", "redzones,canaries").value
    assert value["error"]["line"].startswith(
        "NPUALLOC_DEBUG: unknown word 'canaries', expected some of redzones, poison")
    assert value["error"]["types"][0] == "builtins.ValueError"
