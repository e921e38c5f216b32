#!/usr/bin/env python3
"""Runs torch_npu's own memory-related tests on the simulated runtime.

    run_torch_npu_tests.py CHECKOUT [--python PY] [--sim DIR] [--json OUT] [FILE ...]

CHECKOUT is a working copy of torch_npu of the wheel's version; only its `test`
directory is used, and nothing is written there. PY is an interpreter with
torch, torch_npu and pytest (and what the tests import: expecttest, hypothesis,
numpy, parameterized, pytest). DIR is the directory that `cargo xtask sim`
prints. Extra arguments are test files relative to `test`; without any, the
files in FILES are run. Each file runs in a process of its own; a case that
takes the process down is reported as such and the rest of its file goes on.

Prints one line for each case that does not pass, with the reason, and the
totals. Exit status: 0 if all passed or are known not to, 1 otherwise.
"""

import argparse
import collections
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

# Files whose subject is memory: allocation, caching, pinning, sharing, graphs'
# memory, memory errors. Left out: test_npu.py and test_npu_multinpu.py (torch's
# CUDA tests; they need a CUDA driver or torchvision) and npu/test_uce.py (needs
# collective communication, which is not simulated).
FILES = """
test_npu_allocator.py
test_npu_pinned_memory_background_threads.py
test_sanitizer_pluggable_allocator.py
allocator/test_hostallocator.py
allocator/test_throw_on_npumalloc_oom.py
allocator/test_pluggable_allocator_extensions.py
allocator/host/test_unexpandable_host_allocator.py
allocator/host/test_expandable_host_allocator.py
allocator/host/test_pinned_max_threshold.py
npu/test_no_npu_memory_caching.py
npu/test_roundup_power2_divisions.py
npu/test_aclgraph_rng_state.py
npu/test_aclgraph_update.py
npu/test_aclgraph_multi_stream.py
npu/test_aclgraph_support_blocking.py
npu/test_aclgraph_pin_memory.py
npu/test_aclgraph_launch_host_func.py
npu/test_aclgraph_dfx.py
npu/test_allocator_envs.py
npu/test_allocator_trace_tracker.py
npu/test_allocator_multi_thread_prof.py
npu/test_custom_segment_size.py
npu/test_expandable_segments.py
npu/test_graph_tree.py
npu/test_large_segment_size.py
npu/test_memory_viz.py
npu/test_mempool_destructor.py
npu/test_multi_devices_single_process.py
npu/test_multi_stream_lazy_reclaim.py
npu/test_npu.py
npu/test_per_process_memory_fraction.py
npu/test_pin_memory_host_register.py
npu/test_pin_memory_withoutsetdevice.py
npu/test_sanitizer_record_stream.py
npu/test_storage.py
npu/test_swapped_memory_allocator.py
npu/test_torch_npu.py
""".split()

CASE = re.compile(r"^(?P<id>\S+?::\S.*?) (?P<verdict>PASSED|FAILED|SKIPPED|ERROR|XFAIL|XPASS)\b(?P<rest>.*)$")
START = re.compile(r"^(?P<id>\S+\.py::\S+)")


def environment(sim: Path) -> dict:
    env = dict(os.environ)
    env["LD_LIBRARY_PATH"] = f"{sim}:{env.get('LD_LIBRARY_PATH', '')}"
    env["LD_PRELOAD"] = str(sim.parent / "libimport_fix.so")
    env["LIBRARY_PATH"] = f"{sim}:{env.get('LIBRARY_PATH', '')}"  # extensions link -lascendcl
    env.setdefault("ASCEND_HOME_PATH", str(sim.parent))
    env.setdefault("ASCEND_OPP_PATH", str(sim.parent / "opp"))
    env.setdefault("CANN_SIM_MODE", "backed")
    env.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    return env


def run_once(python, test_dir, file, deselect, env, timeout):
    """One pytest process; returns verdicts by case and the case that was running at its end."""
    command = [python, "-m", "pytest", "-v", "-rA", "--tb=short", "-p", "no:cacheprovider",
               "--color=no", file.name]
    for case in deselect:
        command += ["--deselect", case]
    log = Path(os.environ.get("TMPDIR", "/tmp")) / f"torch_npu_test_{file.stem}.log"
    started = time.monotonic()
    with open(log, "w") as out:
        process = subprocess.Popen(command, cwd=file.parent, env=env, stdout=out,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            status = "timeout"
            # The group is this test's own: the case and the processes it started.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    text = log.read_text(errors="replace")
    verdicts, running = {}, None
    for line in text.splitlines():
        if line.startswith("=") and "short test summary" in line:
            break
        match = CASE.match(line)
        if match:
            verdicts[match["id"]] = (match["verdict"], match["rest"].strip())
            running = None
            continue
        # Output of the case itself may stand between its name and its verdict.
        match = START.match(line)
        if match:
            running = match["id"]
        late = re.search(r"\b(PASSED|FAILED|SKIPPED|ERROR|XFAIL)\b(.*)\[ *\d+%\]$", line)
        if running and late:
            verdicts[running] = (late[1], late[2].strip())
            running = None
    reasons = {}
    for line in text.splitlines():
        match = re.match(r"^(?:FAILED|ERROR) (\S+) - (.*)$", line)
        if match:
            reasons[match[1]] = match[2]
    finished = isinstance(status, int) and status in (0, 1, 5)
    return verdicts, reasons, running, finished, status, text, time.monotonic() - started


def run_file(python, test_dir, name, env, timeout):
    file = test_dir / name
    results, deselect = {}, []
    if not file.exists():
        return {f"{name}": ("MISSING", "no such file in this checkout")}
    while True:
        verdicts, reasons, running, finished, status, text, _ = run_once(
            python, test_dir, file, deselect, env, timeout)
        for case, (verdict, rest) in verdicts.items():
            results[case] = (verdict, reasons.get(case, rest))
        if finished:
            if not results:
                tail = [line for line in text.splitlines() if line.strip()][-1:]
                results[name] = ("ERROR", " ".join(tail))
            break
        if running is None or running in deselect:
            results[name] = ("CRASHED", f"status {status}")
            break
        results[running] = ("CRASHED", f"status {status}")
        deselect = [*deselect, running, *verdicts]
    return {f"{Path(name).parent / case}": result for case, result in results.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--sim", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--timeout", type=float, default=240, help="seconds for each file")
    parser.add_argument("--known", type=Path, help="file of known failures: a case and why, a line",
                        default=Path(__file__).with_name("known_failures.txt"))
    args = parser.parse_intermixed_args()
    test_dir = args.checkout / "test"
    if not test_dir.is_dir():
        parser.error(f"{test_dir} is no directory")
    env = environment(args.sim.resolve())
    env["PYTHONPATH"] = f"{test_dir}:{env.get('PYTHONPATH', '')}"
    known = {}
    if args.known.exists():
        for line in args.known.read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                case, _, why = line.partition(" ")
                known[case] = why.strip()
    everything = {}
    for name in args.files:
        results = run_file(args.python, test_dir, name, env, args.timeout)
        everything.update(results)
        counts = collections.Counter(verdict for verdict, _ in results.values())
        print(f"{name}: " + ", ".join(f"{n} {v.lower()}" for v, n in sorted(counts.items())),
              flush=True)
        for case, (verdict, reason) in sorted(results.items()):
            if verdict not in ("PASSED", "XFAIL"):
                why = f" [known: {known[case]}]" if case in known else ""
                print(f"    {verdict:8} {case}: {reason[:200]}{why}", flush=True)
    counts = collections.Counter(verdict for verdict, _ in everything.values())
    print("total: " + ", ".join(f"{n} {v.lower()}" for v, n in sorted(counts.items())))
    if args.json:
        args.json.write_text(json.dumps(everything, indent=1))
    bad = [case for case, (verdict, _) in everything.items()
           if verdict in ("FAILED", "ERROR", "CRASHED") and case not in known]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
