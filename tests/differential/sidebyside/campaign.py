"""Runs scripts side by side, shrinks what mismatches and counts."""

import collections
import dataclasses
import json

from sidebyside.compare import compare
from sidebyside.shrink import shrink


@dataclasses.dataclass
class Counts:
    """What was run."""

    scripts: int = 0
    operations: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    errors: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    #: In how many scripts a statistic differed that may.
    loose: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    retried: int = 0
    #: Scripts in which the stock allocator left hazards or memory on the device, by finding.
    stock_device: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def text(self):
        lines = [
            f"{self.scripts} scripts, {self.operations.total()} operations, "
            f"{self.errors.total()} of them raised; {self.retried} scripts with a retry or OOM",
            "operations: " + listed(self.operations),
            "raised: " + listed(self.errors),
            "hazards and leaks of the stock allocator: " + listed(self.stock_device),
            "scripts in which a figure differs that may: " + listed(self.loose),
        ]
        return "\n".join(lines)


def listed(counter):
    return ", ".join(f"{name} {count}" for name, count in counter.most_common()) or "none"


def check(pair, script, counts):
    """None when the script does the same with both; otherwise its mismatch."""
    stock, subject = pair.run(script, detailed=True)
    mismatch, loose = compare(stock, subject, script, pair.virtual)
    counts.scripts += 1
    counts.operations.update(operation[0] for operation in script)
    counts.loose.update(loose)
    counts.stock_device.update(stock.get("device") or ())
    for operation, step in zip(script, stock.get("steps", [])):
        if isinstance(step[0], dict) and "error" in step[0]:
            counts.errors[f"{operation[0]}: {step[0]['error']}"] += 1
    if stock.get("steps"):
        last = stock["end"][1]
        counts.retried += bool(last["num_alloc_retries"] or last["num_ooms"])
    return mismatch


def report(pair, script, mismatch, name):
    """Shrinks a script that mismatches, keeping the kind, and describes it."""
    kind = mismatch.kind(script)
    found = {}

    def shows(part):
        again, _ = compare(*pair.run(part, detailed=True), part, pair.virtual)
        if again is None or again.kind(part) != kind:
            return False
        found["mismatch"] = again
        return True

    if not shows(script):
        return f"{name}: {kind}, but not when run again: {mismatch.what}"
    script = shrink(script, shows)
    shows(script)
    lines = [f"{name} with settings {pair.conf!r}: mismatch at {kind}", "minimal script:"]
    lines += [f"    {json.dumps(operation)}" for operation in script]
    step = found["mismatch"].step
    lines.append(f"at {'the end' if step is None else f'operation {step}'}:")
    for key, (stock, subject) in sorted(found["mismatch"].what.items()):
        lines += [f"    {key}", f"        stock    {stock}", f"        npualloc {subject}"]
    return "\n".join(lines)
