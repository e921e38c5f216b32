"""Compares what became of a script with each allocator."""

import dataclasses

from sidebyside.known import AFTER_RESTORE, AFTER_RETRY, MAY_DIFFER, ROWS_MAY_DIFFER, group
from sidebyside.room import had_room
from sidebyside.virtual import without_rows, without_segments


@dataclasses.dataclass
class Mismatch:
    """The first thing that should be equal and is not."""

    #: Number of the operation; None for the state after the script.
    step: int
    #: Pairs of stock's and npualloc's, by name.
    what: dict

    def kind(self, script):
        """A short name: equal kinds are shrunk as the same mismatch."""
        where = "end" if self.step is None else script[self.step][0]
        names = sorted({group(name) for name in self.what})
        return f"{where}: {', '.join(names)}"


def compare(stock, subject, script=(), virtual=False):
    """The first mismatch of two detailed outcomes of a script, or None; and names of
    statistics that differ as they may. `virtual` says that segments are."""
    loose = set()
    if "crash" in stock or "crash" in subject:
        pair = (stock.get("crash"), subject.get("crash"))
        if pair[1] is None:
            # Stock's own; nothing of it is left to compare.
            loose.add("crash of stock only")
            return on_device(stock, subject), loose
        return Mismatch(None, {"crash": pair}), loose
    if virtual:
        stock, subject = (without_segments(one, script) for one in (stock, subject))
    retried = restored = False
    for number, (one, two) in enumerate(zip(stock["steps"], subject["steps"])):
        if out_of_memory(two[0]) and not out_of_memory(one[0]) and had_room(two[0]["text"]):
            return Mismatch(number, {"out of memory with room": (one[0], two[0])}), loose
        alone = retry_of_one(one[1], two[1]) if virtual else None
        if alone:
            # That one waited for the device; what was pending is free there.
            loose.add(alone)
            return on_device(stock, subject), loose
        retried |= any(s[1].get(n) for s in (one, two) for n in ("num_alloc_retries", "num_ooms"))
        if retried and out_of_memory(one[0]) != out_of_memory(two[0]):
            # The states have nothing in common from here on.
            loose.add(f"out of memory with {'stock' if out_of_memory(one[0]) else 'npualloc'} only")
            return on_device(stock, subject), loose
        restored |= bool(script) and script[number][0] == "restore"
        if restored:
            # Stock makes every block of the pool anew, also free ones, and frees those again.
            one, two = ((after_restore(step[0]), step[1]) for step in (one, two))
        differing = figures(one[1], two[1], retried, restored, loose)
        same = one[0] == two[0] or bare(one[0], two[0])
        if not same and script and script[number][0] == "summary" and alike(one[0], two[0]):
            same = True
            loose.update(ROWS_MAY_DIFFER)
        if not same and not excused(one[0], two[0], retried or restored):
            differing["given"] = (one[0], two[0])
        if differing and virtual and one[1] and one[1]["stream_waits"] < two[1]["stream_waits"]:
            # Memory moved between streams without the host: what then waits for one waits for the
            # other's work, too, and more is over afterwards.
            loose.add("wait of a stream")
            return on_device(stock, subject), loose
        if differing:
            return Mismatch(number, differing), loose
    differing = figures(stock["end"][1], subject["end"][1], retried, restored, loose)
    ends = [after_restore(o["end"][0]) if restored else o["end"][0] for o in (stock, subject)]
    for name in ends[0]:
        one, two = ends[0][name], ends[1][name]
        if one != two and not excused({name: one}, {name: two}, retried):
            differing[name] = (one, two)
    if subject.get("device"):
        # Hazards and leaks are not a matter of what stock does.
        differing["device"] = (stock.get("device"), subject["device"])
    if subject["unclean"] not in (None, stock["unclean"]):
        # Stock alone may fail an assertion of its own when it is emptied.
        differing["unclean"] = (stock["unclean"], subject["unclean"])
    return (Mismatch(None, differing) if differing else None), loose


def on_device(stock, subject):
    """The mismatch of hazards and leaks where nothing else is left to compare, or None."""
    if not subject.get("device"):
        return None
    return Mismatch(None, {"device": (stock.get("device"), subject["device"])})


def retry_of_one(stock, subject):
    """What is said of a step before which only one of the two waited for memory, or None."""
    if not stock:
        # Nobody looked: memory is ample then.
        return None
    if stock["num_alloc_retries"] != subject["num_alloc_retries"]:
        fewer = stock["num_alloc_retries"] < subject["num_alloc_retries"]
        return f"retry with {'npualloc' if fewer else 'stock'} only"
    if stock["waits"] != subject["waits"]:
        # npualloc waits for the last use of a page that it moves; no retry in stock's sense.
        return "wait for a fence"
    return None


def after_restore(given):
    """What is left to compare after a checkpoint was set: no trace, no requested sizes."""
    if isinstance(given, dict):
        return {name: after_restore(value) for name, value in given.items() if name != "trace"}
    if not isinstance(given, (list, tuple)):
        return given
    if len(given) == 10 and isinstance(given[0], str):
        blocks = [[*block[:2], None, *block[3:]] for block in given[8]]
        return [*given[:7], None, blocks, given[9]]
    if len(given) == 8 and isinstance(given[0], str):
        return [*given[:5], None, *given[6:]]
    return [after_restore(one) for one in given]


def bare(stock, subject):
    """Whether stock failed an assertion that has no words of its own, and npualloc says what
    was wrong, or npualloc says the same and which one it was."""
    if not all(isinstance(given, dict) and "error" in given for given in (stock, subject)):
        return False
    wordless = stock["text"].endswith("bug to PyTorch. ")
    more = stock["text"] and subject["text"].startswith(stock["text"])
    return stock["error"] == subject["error"] and (wordless or more)


def alike(stock, subject):
    """Whether two summaries differ in the rows that may alone."""
    if not all(isinstance(given, str) for given in (stock, subject)):
        return False
    return without_rows(stock, ROWS_MAY_DIFFER) == without_rows(subject, ROWS_MAY_DIFFER)


def out_of_memory(given):
    return isinstance(given, dict) and given.get("error") == "OutOfMemoryError"


def figures(stock, subject, retried, restored, loose):
    """Statistics that differ and must not; those that may are added to `loose`."""
    found = {}
    for name in stock.keys() | subject.keys():
        one, two = stock.get(name), subject.get(name)
        if one == two:
            continue
        kind = group(name)
        if kind in MAY_DIFFER or (retried and kind in AFTER_RETRY):
            loose.add(kind)
        elif restored and kind in AFTER_RESTORE and (
            kind == "requested_bytes" or not name.endswith(".current")
        ):
            loose.add(kind + " after a restore")
        else:
            found[name] = (one, two)
    return found


def excused(one, two, retried):
    """Whether what an operation gave differs only by what a retry left cached."""
    if not retried:
        return False
    if isinstance(one, dict) and isinstance(two, dict):
        if one.keys() != two.keys():
            return False
        if "error" in one:
            said = two["text"]
            if out_of_memory(two):
                # Below stock's line npualloc explains.
                said = said.split("\n")[0]
            return one["error"] == two["error"] and shape(one["text"]) == shape(said)
        return all(same_live(one[name], two[name]) for name in one)
    if isinstance(one, str) and isinstance(two, str):
        return shape(one) == shape(two)
    return isinstance(one, list) and isinstance(two, list) and live(one) == live(two)


#: Of sizes in texts; summaries choose them by the number.
UNITS = ("B", "KB", "KiB", "MB", "MiB", "GB", "GiB", "bytes")


def shape(text):
    """Text without its numbers and units."""
    kept = "".join(" " if c.isdigit() or c == "." else c for c in text)
    return [w for w in kept.split() if w not in UNITS]


def same_live(one, two):
    return one == two or live(one) == live(two)


def live(entries):
    """Live blocks of segments, or entries of a trace that concern blocks."""
    if not isinstance(entries, list) or not all(isinstance(e, list) for e in entries):
        return None
    if entries and entries[0] and isinstance(entries[0][0], list):
        # Blocks of virtual segments: their layout is left out already.
        return entries
    if entries and len(entries[0]) > 4:
        return sorted(
            [segment[1], segment[2], block[4], block[2], block[3]]
            for segment in entries for block in segment[8]
            if block[3] == "active_allocated"
        )
    # An entry of a snapshot gives the active bytes, which follow from the block chosen.
    entries = [[e[0], None, *e[2:]] if e[0] == "snapshot" else e for e in entries]
    return [e for e in entries if not e[0].startswith("segment_") and e[0] != "oom"]
