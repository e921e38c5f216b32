"""Files made from snapshots, and PyTorch's memory viewer."""


def in_use(text):
    """The lines of a flame graph about live memory: of a free block stock shows the
    size that was requested last, npualloc none."""
    return [line for line in text.splitlines() if ";inactive;" not in line]


def test_usages_are_stocks(run_both):
    stock, subject = run_both("reports:usages")
    for name, text in subject.value["lines"].items():
        assert "allocate" in text and "active_allocated" in text, name
        assert in_use(text) == in_use(stock.value["lines"][name]), name
        assert total(text) == total(stock.value["lines"][name]), name
    for name, text in subject.value["written"].items():
        kind = "segments" if "segment" in name else "memory"
        assert text == "<svg>" + subject.value["lines"][kind], name


def total(text):
    """Bytes of all lines."""
    return sum(int(line.rsplit(" ", 1)[1]) for line in text.splitlines())


def test_a_dump_opens_in_the_viewer(run_both):
    stock, subject = run_both("reports:dump")
    assert all(all(drawn) for drawn in subject.value["drawn"].values())
    for name in ("drawn", "statistics", "trace", "files", "kept"):
        assert subject.value[name] == stock.value[name], name
    assert "dump.pickle" in subject.value["files"]


def test_a_dump_has_stocks_structure(run_both):
    stock, subject = run_both("reports:dump")
    ours, theirs = subject.value["structure"], stock.value["structure"]
    assert ours.keys() == theirs.keys()
    assert ours["device_traces"] == theirs["device_traces"]
    # Stock loses a segment's stack when the segment's first block is cut.
    empty = '"frames": ["list"], "is_expandable"'
    stack = '"frames": ["list", FRAME], "is_expandable"'.replace(
        "FRAME", r'"{\"filename\": \"str\", \"line\": \"int\", \"name\": \"str\"}"'
    )
    def without(kinds):
        return sorted({kind.replace(stack, empty) for kind in kinds})
    assert without(ours["segments"]) == without(theirs["segments"])


def test_snapshots_can_be_compared(run_both):
    stock, subject = run_both("reports:compared")
    assert "only_after" in subject.value["text"] or "after" in subject.value["text"]
    assert subject.value == stock.value
