"""Virtual segments (`expandable_segments:True`) and the settings that go with them."""

import pytest

from environments import BACKED, SMALL, VIRTUAL
from sizes import GIB, MIB, rounded


def settings(text):
    return {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True," + text}


def test_segments_grow_at_their_frontier(run_both):
    stock, subject = run_both("virtual:frontier", env=VIRTUAL)
    value = subject.value
    assert value["in order"] and all(value["expandable"])
    assert value["segments"] == [1, 2]
    assert value["reserved is taken"]
    assert value == stock.value


def test_empty_cache_unmaps_what_is_free(run_both):
    stock, subject = run_both("virtual:emptied", env=VIRTUAL)
    value = subject.value
    full, freed, unmapped, filled, end = value["stages"]
    assert freed["taken"] == full["taken"]
    # Two of five blocks of 40 MiB, but for the pages of 8 MiB they share with their neighbours.
    assert freed["taken"] - unmapped["taken"] >= 2 * 32 * MIB
    assert value["between"]
    assert filled["allocated_bytes.all.current"] == 4 * rounded(40 * MIB)
    assert (end["taken"], end["reserved_bytes.all.current"], value["segments"]) == (0, 0, [])
    for ours, theirs in zip(value["stages"], stock.value["stages"], strict=True):
        assert ours["taken"] == ours["reserved_bytes.all.current"]
        assert ours["reserved_bytes.all.current"] <= theirs["reserved_bytes.all.current"]
        for name in ("allocated_bytes", "active_bytes", "requested_bytes"):
            assert ours[name + ".all.current"] == theirs[name + ".all.current"], name


def test_empty_virt_addr_cache_keeps_physical_memory(run_both):
    stock, subject = run_both("virtual:unmapped", env=VIRTUAL)
    for outcome in (stock, subject):
        before, unmapped, again, _ = outcome.value["stages"]
        assert unmapped["taken"] == before["taken"] == again["taken"]
        assert unmapped["allocated_bytes.all.current"] == rounded(3 * MIB)
        assert outcome.value["made"] == 0
    # Stock does not give back what it keeps unmapped.
    end = subject.value["stages"][-1]
    assert (end["taken"], end["reserved_bytes.all.current"]) == (0, 0)


def test_unmapped_memory_goes_back_though_the_figures_were_reset(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator does not give back what it keeps unmapped")
    assert run("virtual:unmapped_and_counted_anew", env=VIRTUAL).value == 0


@pytest.mark.parametrize("kib", [0, 1, 16])
def test_large_blocks_are_aligned(run_both, kib):
    env = settings(f"base_addr_aligned_kb:{kib}")
    stock, subject = run_both("virtual:aligned", kib=kib, env=env)
    if kib:
        assert all(subject.value["aligned"])
    assert subject.value == stock.value


@pytest.mark.parametrize("pages", [8, 1, 0])
def test_pages_of_1g_are_used_while_there_are(run_both, pages):
    stock, subject = run_both("virtual:pages_of_1g", pages=pages, env=settings("page_size:1g"))
    first, second, third, end = subject.value
    assert first[0] == GIB + 2 * MIB
    assert third[0] >= 3 * GIB and end == [0, 0]
    assert subject.value == stock.value


@pytest.mark.parametrize("text", ["large_segment_size_mb:64", "segment_size_mb:64"])
def test_segments_grow_in_the_steps_that_were_set(run_both, text):
    stock, subject = run_both("virtual:steps", env=settings(text))
    assert subject.value[1][1] == 64 * MIB
    assert subject.value == stock.value


def test_a_full_device_is_used_to_the_end(run_both):
    stock, subject = run_both("virtual:full", env=VIRTUAL | SMALL)
    assert subject.value["large"] == 300 * MIB
    assert subject.value["num_ooms"] == 1
    assert subject.value == stock.value


def test_memory_moves_without_waiting_for_the_device(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator waits for the device and unmaps everything")
    value = run("virtual:moved", env=VIRTUAL | SMALL).value
    assert value["unmapped"] > 0
    assert (value["synchronisations"], value["retries"]) == (0, 0)


@pytest.mark.parametrize("queues", ["0", "1"], ids=["one queue", "a queue for each stream"])
def test_streams_take_turns_without_a_wait_of_the_host(run, subject, queues):
    if subject == "stock":
        pytest.skip("the stock allocator waits for the device and unmaps everything")
    env = VIRTUAL | SMALL | {"CANN_SIM_KERNEL_NS": str(10**9), "PER_STREAM_QUEUE": queues}
    value = run("virtual:taken_in_turns", env=env).value
    # The first turn of the other stream finds the device full.
    synchronisations, waits, maps, unmaps, ordered = map(sum, zip(*value["turns"][2:], strict=True))
    if queues == "1":
        # A stream's wait would come behind what another queue holds: the host waits.
        assert ordered == 0
        return
    assert (synchronisations, waits, maps, unmaps, value["retries"]) == (0, 0, 0, 0, 0)
    # In each turn one stream waits for the other.
    assert ordered >= 10


# So many are in each of torch_npu's pools.
@pytest.mark.parametrize("streams", ["32", "8"])
def test_memory_moves_between_streams_that_were_never_current(run, subject, streams):
    if subject == "stock":
        pytest.skip("the stock allocator waits for the device and unmaps everything")
    value = run("virtual:moved_by_name", env=VIRTUAL | SMALL | {"STREAMS_PER_DEVICE": streams}).value
    assert value == {"synchronisations": 0, "retries": 0}


# Work that memory did not wait for is a hazard, which fails the test.
def test_memory_moves_between_streams_that_were_made_anew(run, subject):
    if subject == "stock":
        pytest.skip("the stock allocator waits for the device and unmaps everything")
    env = VIRTUAL | SMALL | {"CANN_SIM_KERNEL_NS": str(10**9), "TASK_QUEUE_ENABLE": "0"}
    before, after = run("virtual:moved_after_a_restart", env=env).value
    assert before != after


@pytest.mark.parametrize("alias", ["allow", "refuse", "apart"])
def test_tensors_keep_their_contents_where_memory_moves(run, subject, request, alias):
    plugin = request.config.getoption("--plugin") if subject != "stock" else None
    env = VIRTUAL | BACKED | {"CANN_SIM_CAPACITY": str(384 * MIB), "CANN_SIM_ALIAS": alias}
    scenario = "virtual:contents_where_memory_moves"
    value = run(scenario, seed=1, steps=400, plugin=plugin, env=env).value
    assert (value["wrong"], value["checked"]) == (0, 400)
    # Mappings are left behind only where both addresses of a page were seen to show the same.
    if plugin and alias == "allow":
        assert value["lent"] > 0
    elif plugin:
        assert value["lent"] == 0 < value["unmapped"]


@pytest.mark.parametrize("zero_copy", ["0", "1"])
def test_mappings_are_left_behind_unless_hccl_is_to_know_each_page_once(run, subject, request, zero_copy):
    if subject == "stock":
        pytest.skip("the stock allocator waits for the device and unmaps everything")
    plugin = request.config.getoption("--plugin")
    env = VIRTUAL | BACKED | {"CANN_SIM_CAPACITY": str(384 * MIB), "CANN_SIM_ALIAS": "allow",
                              "TORCH_HCCL_ZERO_COPY": zero_copy}
    value = run("virtual:contents_where_memory_moves", seed=1, steps=60, plugin=plugin, env=env).value
    assert (value["wrong"], value["checked"]) == (0, 60)
    assert (value["lent"] > 0) == (zero_copy == "0")
