"""Memory records of torch_npu's profiler."""


def test_memory_is_recorded_as_stock_does(run_both):
    stock, subject = run_both("profiler:memory")
    kinds = [entry["kind"] for entry in subject.value["sessions"][0]]
    assert kinds == ["malloc", "malloc", "block_free", "free", "malloc"]
    assert subject.value["in_order"]
    assert subject.value == stock.value


def test_nothing_is_recorded_unasked(run_both):
    stock, subject = run_both("profiler:without_memory")
    assert subject.value == stock.value == []
