"""Comparing what two allocators did."""

import re

#: Host time and addresses differ from run to run; nothing else may.
EXACT = [
    "allocation", "allocated_bytes", "requested_bytes", "active", "active_bytes",
]


def figures(stats, *groups):
    """The statistics whose first word is among `groups`."""
    return {name: value for name, value in stats.items() if name.split(".")[0] in groups}


def same_error(stock, subject):
    """The subject's exception is stock's: its classes and what its first line says."""
    assert subject is not None, f"no exception; stock raises {stock['line']!r}"
    assert stock is not None, f"stock raises nothing; the subject {subject['line']!r}"
    assert subject["types"] == stock["types"]
    assert without_place(subject["line"]) == without_place(stock["line"])


def without_place(line):
    """The text without the source file and line it may name."""
    return re.sub(r"\(.*?at .*?\)|\"?[\w/.-]+\.(cpp|h)\"?:\d+", "", line)


#: Figures that depend on the kind of segments, by the first word of their names.
OF_SEGMENTS = {
    "reserved_bytes", "segment", "inactive_split", "inactive_split_bytes", "num_device_alloc", "num_device_free",
}


def of_any_engine(value):
    """A structure without the figures that depend on the kind of segments."""
    if isinstance(value, dict):
        return {name: of_any_engine(one) for name, one in value.items()
                if name.split(".")[0] not in OF_SEGMENTS}
    if isinstance(value, list):
        return [of_any_engine(one) for one in value]
    return value
