"""Random scripts, a function of their seed."""

import random

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
STREAMS = 4
DEVICES = 2

FLAVOURS = [
    "plain", "streams", "pools", "oom", "capture", "all", "settings", "checkpoints", "devices",
]
#: Not for long scripts in which sizes repeat. With uses on other streams and nobody who looks, frees share events,
#: and blocks wait a little longer; of private pools with virtual segments, stock loses a live block now and then,
#: or fails an assertion.
UNSUITED = ["streams", "pools", "capture", "all"]

SETTINGS = [
    "max_split_size_mb:20", "max_split_size_mb:64", "garbage_collection_threshold:0.6",
    "roundup_power2_divisions:4", "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", "",
]
#: Those that stock takes with virtual segments too.
UNASKED = [text for text in SETTINGS if not text.startswith(("max_split", "garbage"))]
#: Calls for a pool that was never made.
WRONG = ["_npu_endAllocateToPool", "_npu_releasePool"]
#: Never after a valid one: stock forgets that when it refuses another.
REFUSED = [
    "max_split_size_mb:5", "max_split_size_mb:none", "nonsense:1", "max_split_size_mb",
    "garbage_collection_threshold:2.0", "expandable_segments:maybe",
]


class Sizes:
    """Where a script's sizes come from."""

    def __init__(self, random_, repeating):
        self._random = random_
        #: Those that come again and again.
        self._usual = [min(size(random_, False), GIB) for _ in range(4)] if repeating else []

    def next(self, large):
        if self._usual and self._random.random() < 0.8:
            return self._random.choice(self._usual)
        made = size(self._random, large)
        # A failure's numbers follow from what is reserved, which may differ.
        return min(made, GIB) if self._usual else made


def size(random_, large):
    """A size in bytes; the borders between size classes are likely."""
    kind = random_.random()
    if kind < 0.35:
        return random_.randint(1, MIB - 32)
    if kind < 0.65:
        return random_.randint(MIB - 600, 10 * MIB)
    if kind < 0.80:
        edge = random_.choice([512, MIB, 2 * MIB, 10 * MIB, 20 * MIB])
        return max(1, edge - 32 + random_.choice([-513, -1, 0, 1, 32, 512]))
    if kind < 0.82:
        return 0
    if kind < 0.83:
        return 1 << 60
    return random_.randint(10 * MIB, 300 * MIB if large else 60 * MIB)


def script(seed, expandable=False, repeating=False):
    """The script of a seed.

    `expandable`: stock has virtual segments. `repeating`: nobody asked npualloc for them; a few sizes come
    again and again, and are little of what is live.
    """
    r = random.Random(seed)
    sizes, streams = Sizes(r, repeating), 2 if repeating else STREAMS
    flavour = r.choice([one for one in FLAVOURS if not (repeating and one in UNSUITED)])
    every = flavour == "all"
    operations = []
    blocks, count = [], 0
    pools, graphs = [], []
    if every or r.random() < 0.3:
        operations.append(["history", r.choice(["all", "state"]), 1000])
    if flavour == "oom" or (every and r.random() < 0.4):
        if r.random() < 0.5:
            operations.append(["capacity", r.randint(60, 400) * MIB])
        else:
            operations.append(["fraction", r.choice([0.001, 0.002, 0.004])])
    elif repeating:
        operations.append(["alloc", "ballast", 8 * GIB, 0])
    settings = r.choice([UNASKED if repeating else SETTINGS, REFUSED])
    if flavour == "settings":
        operations.append(["setting", r.choice(settings)])
    for _ in range(r.randint(4, 200 if repeating else 60)):
        kind = r.random()
        if repeating and r.random() < 0.8:
            # Blocks come and go, mostly.
            kind *= 0.68
        if kind < 0.42:
            # Setting a checkpoint takes memory away from whoever has its address alone.
            raw = r.random() < 0.15 and flavour != "checkpoints"
            name = "raw" if raw else "alloc"
            operations.append([name, count, sizes.next(every), r.randrange(streams)])
            blocks.append(count)
            count += 1
        elif kind < 0.68 and blocks:
            operations.append(["free", blocks.pop(r.randrange(len(blocks)))])
        elif kind < 0.90 and (every or flavour == "streams") and blocks:
            name = r.choice(["use", "use", "use", "record", "erase", "sync", "sync_all"])
            if name == "sync_all":
                operations.append([name])
            elif name == "sync":
                operations.append([name, r.randrange(STREAMS)])
            else:
                operations.append([name, r.choice(blocks), r.randrange(STREAMS)])
        elif kind < 0.90 and flavour in ("pools", "all"):
            operations.append(pool_operation(r, pools, blocks, expandable))
        elif kind < 0.90 and flavour == "checkpoints":
            operations.append(checkpoint_operation(r, pools))
        elif kind < 0.80 and flavour == "devices":
            operations.append(["alloc_on", count, sizes.next(False), r.randrange(DEVICES)])
            blocks.append(count)
            count += 1
        elif kind < 0.90 and flavour == "devices":
            operations.append(["stats_on", r.randrange(DEVICES)])
        elif kind < 0.90 and flavour == "capture":
            operations.append(capture_operation(r, graphs))
        elif kind < 0.90 and flavour == "settings" and r.random() < 0.4:
            operations.append(["setting", r.choice(settings)])
        else:
            operations.append(r.choice([
                ["empty_cache"], ["empty_cache"], ["reset_peak"], ["reset_accumulated"],
                ["snapshot"], ["summary", r.random() < 0.5], ["mem_info"], ["sync_all"],
                ["bad_free", r.choice(["unknown", "null", "inside"])],
                ["empty_virt"] if expandable and not repeating else ["snapshot"],
            ]))
    return operations


def pool_operation(r, pools, blocks, expandable):
    if not pools or r.random() < 0.15:
        pools.append(len(pools))
        # Unsplit blocks of virtual segments have the size of what was mapped.
        return ["pool_new", pools[-1], r.random() < 0.3, r.random() < 0.3 and not expandable]
    name = r.choice(["pool_begin"] * 6 + ["pool_end"] * 4 + ["pool_drop", "pool_snapshot",
                    "pool_live"] * 2 + ["pool_wrong"])
    if name == "pool_end":
        return [name]
    if name == "pool_wrong":
        return [name, r.choice(WRONG)]
    if name == "pool_live":
        return [name, r.choice(pools), r.sample(blocks, min(len(blocks), 2))]
    return [name, r.choice(pools)]


def checkpoint_operation(r, pools):
    if not pools or r.random() < 0.1:
        pools.append(len(pools))
        return ["pool_new", pools[-1], False, False]
    name = r.choice(["pool_begin"] * 3 + ["pool_end"] * 2 + ["checkpoint"] * 3 + ["restore"] * 3
                    + ["pool_snapshot", "restore_foreign"])
    return [name] if name == "pool_end" else [name, r.choice(pools)]


def capture_operation(r, graphs):
    name = r.choice(["capture_begin", "capture_begin", "capture_end", "replay", "graph_drop"])
    if name == "capture_end":
        return [name]
    if name == "capture_begin":
        graphs.append(len(graphs))
        return [name, graphs[-1], r.choice([None, *graphs[:-1]])]
    return [name, r.randrange(max(1, len(graphs)))]
