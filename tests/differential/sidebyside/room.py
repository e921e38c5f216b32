"""Whether a request failed although the device had memory for it."""

import re

#: Rounding, a page's rest, and the pieces in which memory is had: bytes.
SLACK = 64 << 20

UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

SIZE = r"([0-9.]+) (bytes|KiB|MiB|GiB)"


def had_room(text):
    """Whether an out-of-memory error's own numbers say that there was enough."""
    asked, free = named(text, "Tried to allocate " + SIZE), named(text, SIZE + " free;")
    allowed = named(text, SIZE + " allowed;")
    if allowed is not None:
        free = min(free, allowed - named(text, SIZE + " reserved in total"))
    return free >= asked + SLACK


def named(text, pattern):
    """The first size that matches, bytes; None where there is none."""
    found = re.search(pattern, text)
    return found and float(found[1]) * UNITS[found[2]]
