"""Random scripts by hand, any number:

cargo xtask run -- tests/differential/run.py --seed 1 --count 100000
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from sidebyside.campaign import Counts, check, report  # noqa: E402
from sidebyside.generate import script  # noqa: E402
from sidebyside.process import Pair  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description="Run random scripts side by side")
    parser.add_argument("--plugin", type=pathlib.Path, default=os.environ.get("NPUALLOC_PLUGIN"))
    parser.add_argument("--seed", type=int, default=0, help="seed of the first script")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--conf", default="", help="PYTORCH_NPU_ALLOC_CONF of both")
    parser.add_argument("--most", type=int, default=10, help="kinds of mismatch to shrink")
    parser.add_argument(
        "--unasked", action="store_true",
        help="npualloc takes virtual segments by itself, and is looked at now and then only",
    )
    arguments = parser.parse_args()
    if not arguments.plugin or not os.path.isfile(arguments.plugin):
        parser.error("--plugin must name the built plug-in")
    pair = Pair(
        arguments.plugin, arguments.conf, tempfile.mkdtemp(prefix="differential-"),
        arguments.unasked,
    )
    counts, kinds, start = Counts(), {}, time.monotonic()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        made = script(seed, pair.virtual, pair.unasked)
        mismatch = check(pair, made, counts)
        if mismatch:
            kind = mismatch.kind(made)
            kinds[kind] = kinds.get(kind, 0) + 1
            if kinds[kind] == 1 and len(kinds) <= arguments.most:
                print(report(pair, made, mismatch, f"seed {seed}"), flush=True)
    pair.close()
    print(counts.text())
    print("kinds of mismatch:", kinds or "none")
    print(f"{time.monotonic() - start:.0f} s")
    return bool(kinds)


if __name__ == "__main__":
    sys.exit(main())
