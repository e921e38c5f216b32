"""Compares what became of a script with each allocator."""

import dataclasses

from sidebyside.known import AFTER_RETRY, MAY_DIFFER, group


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


def compare(stock, subject):
    """The first mismatch of two detailed outcomes, or None; and names of
    statistics that differ as they may."""
    loose = set()
    if "crash" in stock or "crash" in subject:
        pair = (stock.get("crash"), subject.get("crash"))
        return Mismatch(None, {"crash": pair}), loose
    retried = False
    for number, (one, two) in enumerate(zip(stock["steps"], subject["steps"])):
        retried |= any(s[1][n] > 0 for s in (one, two) for n in ("num_alloc_retries", "num_ooms"))
        if retried and out_of_memory(one[0]) != out_of_memory(two[0]):
            # The states have nothing in common from here on.
            loose.add(f"out of memory with {'stock' if out_of_memory(one[0]) else 'npualloc'} only")
            if subject.get("device"):
                return Mismatch(None, {"device": (stock.get("device"), subject["device"])}), loose
            return None, loose
        differing = figures(one[1], two[1], retried, loose)
        if one[0] != two[0] and not excused(one[0], two[0], retried):
            differing["given"] = (one[0], two[0])
        if differing:
            return Mismatch(number, differing), loose
    differing = figures(stock["end"][1], subject["end"][1], retried, loose)
    for name in stock["end"][0]:
        one, two = stock["end"][0][name], subject["end"][0][name]
        if one != two and not excused({name: one}, {name: two}, retried):
            differing[name] = (one, two)
    if subject.get("device"):
        # Hazards and leaks are not a matter of what stock does.
        differing["device"] = (stock.get("device"), subject["device"])
    if stock["unclean"] != subject["unclean"]:
        differing["unclean"] = (stock["unclean"], subject["unclean"])
    return (Mismatch(None, differing) if differing else None), loose


def out_of_memory(given):
    return isinstance(given, dict) and given.get("error") == "OutOfMemoryError"


def figures(stock, subject, retried, loose):
    """Statistics that differ and must not; those that may are added to `loose`."""
    found = {}
    for name in stock.keys() | subject.keys():
        one, two = stock.get(name), subject.get(name)
        if one == two:
            continue
        kind = group(name)
        if kind in MAY_DIFFER or (retried and kind in AFTER_RETRY):
            loose.add(kind)
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
            return one["error"] == two["error"] and shape(one["text"]) == shape(two["text"])
        return all(live(one[name]) == live(two[name]) for name in one)
    if isinstance(one, str) and isinstance(two, str):
        return shape(one) == shape(two)
    return isinstance(one, list) and isinstance(two, list) and live(one) == live(two)


def shape(text):
    """Text without its numbers and units."""
    kept = "".join(" " if c.isdigit() or c == "." else c for c in text)
    return [w for w in kept.split() if w not in ("B", "KiB", "MiB", "GiB", "bytes")]


def live(entries):
    """Live blocks of segments, or entries of a trace that concern blocks."""
    if not isinstance(entries, list) or not all(isinstance(e, list) for e in entries):
        return None
    if entries and len(entries[0]) > 4:
        return sorted(
            [segment[1], segment[2], block[4], block[2], block[3]]
            for segment in entries for block in segment[8]
            if block[3] == "active_allocated"
        )
    return [e for e in entries if not e[0].startswith("segment_") and e[0] != "oom"]
