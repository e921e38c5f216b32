"""Python code that allocates while it is recorded with stacks."""

import gc
import weakref

from scenarios.common import KIB, allocate, caught

#: Functions that are made one after another, of which each may lie where the one before did.
MADE = 50
#: More calls than are recorded of one stack.
DEEP = 200


def make(number, file="made.py"):
    """A function `made_<number>`, in line 7."""
    names = {}
    source = "\n" * 6 + f"def made_{number}(call, size): return call(size)"
    exec(compile(source, file, "exec"), names)
    # Not in a cycle with its globals: it goes with its last call.
    return names.pop(f"made_{number}")


def short_lived():
    """Functions that are gone when the next one is made."""
    for number in range(1, MADE + 1):
        make(number)(allocate, number * KIB)
    return MADE


class Local:
    """What a function has in a variable."""


def deep():
    """How many functions' variables are still there after they have returned."""
    locals_ = []

    def call(depth):
        mine = Local()
        locals_.append(weakref.ref(mine))
        return call(depth - 1) if depth else allocate(5 * KIB)

    call(DEEP)
    gc.collect()
    return sum(one() is not None for one in locals_)


def nameless():
    """Code from a file whose name is no text that others could read."""
    return caught(make(1, file="\udcff.py"), allocate, 5 * KIB)
