"""Statistics by every key, their resets, and the summary."""

import pytest

from sizes import MIB, rounded

GROUPS = [
    "allocation", "segment", "active", "inactive_split",
    "allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes",
    "requested_bytes",
]
POOLS = ["all", "large_pool", "small_pool"]
METRICS = ["current", "peak", "allocated", "freed"]
#: busy() keeps these and makes and frees the others.
KEPT = [1000, 3 * MIB, 40 * MIB]
FREED = [500, 700_000, 2 * MIB, 15 * MIB, 100 * MIB]


def test_every_key_is_there(run):
    value = run("statistics:all_keys").value
    for stats in (value["npu"], value["accelerator"]):
        for group in GROUPS:
            for pool in POOLS:
                for metric in METRICS:
                    assert f"{group}.{pool}.{metric}" in stats
        for name in ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"):
            assert name in stats


def test_figures_are_those_of_the_requests(run):
    stats = run("statistics:all_keys").value["npu"]
    small = [n for n in KEPT + FREED if rounded(n) <= MIB]
    large = [n for n in KEPT + FREED if rounded(n) > MIB]
    assert stats["allocation.small_pool.allocated"] == len(small)
    assert stats["allocation.large_pool.allocated"] == len(large)
    assert stats["allocation.all.current"] == len(KEPT)
    assert stats["allocation.all.freed"] == len(FREED)
    assert stats["allocated_bytes.all.current"] == sum(map(rounded, KEPT))
    assert stats["allocated_bytes.all.allocated"] == sum(map(rounded, KEPT + FREED))
    assert stats["requested_bytes.all.current"] == sum(KEPT)
    # The kept ones were live all the time, the others one after another.
    assert stats["allocated_bytes.all.peak"] == sum(map(rounded, KEPT)) + rounded(FREED[-1])
    assert stats["num_ooms"] == stats["num_alloc_retries"] == 0


def test_every_figure_is_stocks(run_both):
    stock, subject = run_both("statistics:all_keys")
    assert subject.value == stock.value


def test_both_interfaces_agree(run):
    value = run("statistics:all_keys").value
    shared = value["npu"].keys() & value["accelerator"].keys()
    assert len(shared) > 100
    assert {k: value["npu"][k] for k in shared} == {k: value["accelerator"][k] for k in shared}


def test_readers_give_the_figures_of_the_dictionary(run):
    for name, (read, listed) in run("statistics:readers").value.items():
        assert read == listed, name


@pytest.mark.parametrize("by", ["npu", "accelerator"])
def test_peaks_fall_to_the_present_and_grow_again(run, by):
    before, after, grown = run("statistics:reset_peak", by=by).value
    for source in ("npu", "accelerator"):
        peaks = [key for key in before[source] if key.endswith(".peak")]
        assert len(peaks) >= len(GROUPS) * len(POOLS)
        for key in peaks:
            current = key.removesuffix("peak") + "current"
            assert after[source][key] == after[source][current] == before[source][current], key
        assert before[source]["allocated_bytes.all.peak"] > after[source]["allocated_bytes.all.peak"]
        assert grown[source]["allocated_bytes.all.peak"] == sum(
            map(rounded, [*KEPT, 10 * MIB])
        )


@pytest.mark.parametrize("by", ["npu", "accelerator"])
def test_totals_fall_to_zero_and_count_again(run, by):
    before, after, later = run("statistics:reset_accumulated", by=by).value
    for source in ("npu", "accelerator"):
        totals = [key for key in before[source] if key.endswith((".allocated", ".freed"))]
        assert len(totals) >= 2 * len(GROUPS) * len(POOLS)
        assert all(after[source][key] == 0 for key in totals)
        kept = [key for key in before[source] if key.endswith((".current", ".peak"))]
        assert {k: after[source][k] for k in kept} == {k: before[source][k] for k in kept}
        assert later[source]["allocation.all.allocated"] == 1
        assert later[source]["allocation.all.freed"] == len(KEPT) + 1


@pytest.mark.parametrize("by", ["npu", "accelerator"])
@pytest.mark.parametrize("what", ["reset_peak", "reset_accumulated"])
def test_resets_are_stocks(run_both, what, by):
    stock, subject = run_both(f"statistics:{what}", by=by)
    assert subject.value == stock.value


def test_the_summary_is_stocks(run_both):
    stock, subject = run_both("statistics:summary")
    assert "Allocated memory" in subject.value[0]
    assert subject.value == stock.value


def test_the_backend_is_named_as_stocks(run_both):
    stock, subject = run_both("statistics:backend")
    assert subject.value == stock.value


def test_a_training_run_has_stocks_figures(run_both):
    stock, subject = run_both("statistics:training", steps=6)
    assert len(subject.value) == 6
    assert subject.value[-1]["allocation.all.allocated"] > 100
    assert subject.value == stock.value
