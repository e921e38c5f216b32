"""How a case is measured: the stock allocator and npualloc in turns."""

import dataclasses
import statistics

import numpy

from libraries import NPUALLOC, STOCK, SUBJECTS


@dataclasses.dataclass
class Run:
    """What one run of a case found. Times are nanoseconds of an operation, of each round."""

    operations: float
    steps: int
    times: dict
    loop: float | None
    tails: dict


class Measurer:
    """Runs a case for both subjects in turns."""

    def __init__(self, bench, plugin, quick):
        self._bench = bench
        self._plugin = plugin
        self.quick = quick
        self._rounds = 3 if quick else 15
        self._round_ns = 2e6 if quick else 2e7
        self._samples = 20_000 if quick else 200_000
        self._clock = bench.clock_cost()

    def measure(self, case):
        """The row of a case."""
        return self.row(case, [self.run(case, self._rounds)])

    def row(self, case, runs):
        """The row of a case that was run so often."""
        times = {subject: [time for run in runs for time in run.times[subject]] for subject in SUBJECTS}
        loop, tails = runs[0].loop, runs[0].tails
        ratios = [a / b for a, b in zip(times[STOCK], times[NPUALLOC])]
        net_ratios = [(a - loop) / (b - loop) for a, b in zip(times[STOCK], times[NPUALLOC])] if loop else []
        quartiles = statistics.quantiles(ratios, n=4, method="inclusive")
        return {
            "case": case.name,
            "rounds": len(ratios),
            "operations_per_round": runs[0].operations * runs[0].steps,
            "stock_ns": statistics.median(times[STOCK]),
            "npualloc_ns": statistics.median(times[NPUALLOC]),
            "stock_best_ns": min(times[STOCK]),
            "npualloc_best_ns": min(times[NPUALLOC]),
            "ratio": statistics.median(ratios),
            "ratio_quartiles": [quartiles[0], quartiles[2]],
            "ratio_range": [min(ratios), max(ratios)],
            "loop_ns": loop,
            "net_ratio": statistics.median(net_ratios) if net_ratios else None,
            "stock_p99_ns": tails[STOCK][0],
            "npualloc_p99_ns": tails[NPUALLOC][0],
            "stock_p999_ns": tails[STOCK][1],
            "npualloc_p999_ns": tails[NPUALLOC][1],
        }

    def run(self, case, rounds, steps=None):
        """Makes a case for both subjects, warms it up, runs its rounds and ends it. `steps`: of a round, where an earlier
        run has found out."""
        bench = self._bench
        opened = {}
        try:
            for subject in SUBJECTS:
                opened[subject] = case.open(bench, subject)
            operations = bench.operations(opened[STOCK])
            steps = self._warm_up(case, opened, steps)
            times = self._alternate(case, opened, steps, operations, rounds)
            loop = self._loop(opened[NPUALLOC], steps, operations, rounds)
            tails = {s: self._tail(case, opened[s], s, steps, operations) for s in SUBJECTS}
        finally:
            for subject, pointer in opened.items():
                case.close(bench, subject, pointer)
        for subject in SUBJECTS:
            bench.checked(bench.empty_cache(subject))
        return Run(operations, steps, times, loop, tails)

    def _round(self, case, opened, subject, steps):
        after = case.before(subject) if case.before else None
        time = self._bench.checked(self._bench.round(subject, opened[subject], steps))
        if after:
            after()
        return time

    def _warm_up(self, case, opened, known):
        """Brings both to a steady state; returns the steps of a round."""
        steps = known or case.steps or 64
        least = 0 if self.quick else case.least_steps
        while True:
            time = max(self._round(case, opened, subject, steps) for subject in SUBJECTS)
            self._plugin.check()
            if known or case.steps or (time >= self._round_ns and steps >= least):
                break
            steps *= 2
        for subject in SUBJECTS:
            self._round(case, opened, subject, steps)
        self._plugin.check()
        return steps

    def _alternate(self, case, opened, steps, operations, rounds):
        times = {STOCK: [], NPUALLOC: []}
        for number in range(rounds):
            order = SUBJECTS if number % 2 == 0 else SUBJECTS[::-1]
            for subject in order:
                time = self._round(case, opened, subject, steps)
                times[subject].append(time / (operations * steps))
        return times

    def _loop(self, opened, steps, operations, rounds):
        """What the benchmark's own loop takes of an operation's time; None where that is not known."""
        bench = self._bench
        times = [bench.checked(bench.loop(NPUALLOC, opened, steps)) for _ in range(rounds)]
        return statistics.median(times) / (operations * steps) or None

    def _tail(self, case, opened, subject, steps, operations):
        """99th and 99.9th percentile of operations without a driver call, the time of reading the clock
        taken off; None where there are none."""
        if not case.latencies:
            return None, None
        steps = steps if case.steps else max(1, int(self._samples / operations))
        buffer = numpy.zeros(max(self._samples, int(steps * operations)), dtype=numpy.uint32)
        after = case.before(subject) if case.before else None
        count = self._bench.checked(
            self._bench.latencies(subject, opened, steps, buffer.ctypes.data, len(buffer))
        )
        if after:
            after()
        if count < 1000:
            return None, None
        return tuple(
            max(0.0, float(value) - self._clock)
            for value in numpy.percentile(buffer[:count], [99, 99.9])
        )
