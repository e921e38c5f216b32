"""libnpualloc_pluggable.so: npualloc through torch_npu's NPUPluggableAllocator."""

import pathlib

import pytest

from environments import SLOW

MIB = 1 << 20
# A request is padded by 32 bytes and rounded to 512.
BLOCK = 3 * MIB + 512


@pytest.fixture
def pluggable(request, subject, processes):
    """Runs a scenario in a fresh process, with the path of the library."""
    if subject == "stock":
        pytest.skip("the stock allocator is not loaded")
    plugin = pathlib.Path(request.config.getoption("--plugin"))
    places = [plugin.parent, plugin.parent / "pluggable"]
    library = next(
        (place / "libnpualloc_pluggable.so" for place in places
         if (place / "libnpualloc_pluggable.so").is_file()),
        None,
    )
    assert library is not None, f"no libnpualloc_pluggable.so in {places}"

    def run(name, **options):
        outcome = processes.run(
            f"pluggable:{name}",
            "stock",
            library=str(library),
            **options,
        )
        return outcome.value

    return run


def test_the_example(pluggable):
    lines = pluggable("run_example")
    assert [line.split(":")[0] for line in lines] == ["allocated", "at most", "reserved"]
    allocated, most, reserved = (int(line.split()[-2]) for line in lines)
    # Weights and their gradients, 4 MiB each, and two biases.
    assert 2 * 4 * 1024 < allocated <= most <= reserved


def test_loading_registers_nothing(pluggable):
    value = pluggable("loading")
    assert value == {"backend": "native", "accelerator": 20 * MIB}


def test_the_plugin_is_noticed(pluggable, request):
    error = pluggable("beside_the_plugin", plugin=request.config.getoption("--plugin"))
    assert "the plug-in serves torch_npu already" in error["line"]


def test_malloc_and_free_are_enough(pluggable):
    assert pluggable("two_functions") == {"again": True, "other": "npu:1", "consistency": None}


def test_statistics_and_reset_of_peaks(pluggable):
    value = pluggable("statistics")
    second = 5 * MIB + 512
    assert value["backend"] == "pluggable"
    assert value["both"]["allocated_bytes.all.current"] == BLOCK + second
    assert value["one"]["allocated_bytes.all.current"] == BLOCK
    assert value["one"]["allocated_bytes.all.peak"] == BLOCK + second
    assert value["one"]["allocation.all.allocated"] == 2
    assert value["one"]["allocation.all.freed"] == 1
    assert value["reset"]["allocated_bytes.all.peak"] == BLOCK
    assert value["reset"]["reserved_bytes.all.current"] == 20 * MIB
    assert value["devices"] == [0, 7 * MIB]
    assert value["empty"] == 0
    assert value["consistency"] is None


def test_emptying_the_cache(pluggable):
    assert pluggable("cache", size=30 * MIB) == {"before": 32 * MIB, "after": 0}


def test_other_streams(pluggable):
    value = pluggable("streams")
    assert value["pending"] == {
        "active_bytes.all.current": BLOCK,
        "allocated_bytes.all.current": 0,
    }
    assert not value["early"]
    assert value["late"]
    assert value["consistency"] is None


def test_each_stream_has_its_own_memory(pluggable):
    assert pluggable("stream_of_a_request") == {"other": False, "same": True}


def test_an_erased_use_holds_nothing(pluggable):
    assert pluggable("erased", env=SLOW) == {"reused": True}


def test_memory_of_others_is_not_tracked(pluggable):
    value = pluggable("foreign")
    assert value == {"offset": 1024, "error": None, "consistency": None}


def test_private_pools(pluggable):
    value = pluggable("pools")
    assert value["apart"]
    assert "already recording to mempool_id" in value["again"]["line"]
    assert "not currently recording to mempool_id" in value["end"]["line"]
    assert value["reserved"] == 40 * MIB
    assert value["kept"] == 40 * MIB
    assert value["released"] == 20 * MIB
    assert value["consistency"] is None


def test_a_private_pool_of_one_stream(pluggable):
    value = pluggable("pool_of_a_stream")
    assert value == {"both": 40 * MIB, "kept": 20 * MIB, "consistency": None}


def test_a_cache_that_cannot_be_emptied(pluggable):
    value = pluggable("broken_device")
    assert "507899" in value["error"]["line"]
    assert value["then"] == 0


def test_limits(pluggable):
    value = pluggable("limits")
    assert "torch.OutOfMemoryError" in value["error"]["types"]
    assert value["error"]["line"].startswith("NPU out of memory. Tried to allocate")
    assert value["fits"]
    assert value["consistency"] is None


def test_settings_at_run_time(pluggable):
    # A fixed segment would have 20 MiB; a virtual one maps what is asked for.
    reserved = pluggable("settings")
    assert BLOCK <= reserved < 20 * MIB


def test_settings_of_the_environment(pluggable):
    env = {"PYTORCH_NPU_ALLOC_CONF": "large_segment_size_mb:64"}
    assert pluggable("cache", size=3 * MIB, env=env) == {"before": 64 * MIB, "after": 0}


def test_base_of_a_segment(pluggable):
    assert pluggable("base") == {"start": True, "size": 20 * MIB}


def test_too_late_is_refused(pluggable):
    value = pluggable("too_late")
    assert "Can't swap an already initialized allocator" in value["error"]["line"]
    assert value["address"]
