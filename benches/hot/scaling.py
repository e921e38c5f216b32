"""How much more several threads get done than one."""

import statistics

from hot import ALONE, TOGETHER
from libraries import NPUALLOC, STOCK

# The cases take turns as well, since a machine that others use changes its speed within seconds: a ratio is of runs of one
# turn. A turn has as many rounds.
TURNS, ROUNDS = 9, 3
NAMES = {"stock": STOCK, "npualloc": NPUALLOC}


def scaling(measurer, bench, cases):
    """Rows of the cases, by name, and the ratios of their throughputs: median, least and most of the turns."""
    turns = 1 if measurer.quick else TURNS
    runs = {name: [] for name in cases}
    ratios = {}
    for turn in range(turns):
        print(f"turn {turn + 1} of {turns}: {', '.join(cases)}", flush=True)
        for name, case in cases.items():
            before = runs[name][0].steps if turn else None
            runs[name].append(measurer.run(case, ROUNDS, before))
        for text, name in TOGETHER.items():
            if not {ALONE, name} <= cases.keys():
                continue
            for who, subject in NAMES.items():
                one, two = (statistics.median(runs[case][-1].times[subject]) for case in (ALONE, name))
                ratios.setdefault(f"{who}: throughput of 2 threads / of 1, {text}", []).append(one / two)
        ratio = bench.checked(bench.two_threads())
        ratios.setdefault("this machine: throughput of 2 threads / of 1, arithmetic that shares nothing", []).append(ratio)
    rows = [measurer.row(case, runs[name]) for name, case in cases.items()]
    return rows, {name: [statistics.median(found), min(found), max(found)] for name, found in ratios.items()}
