"""The tests' side: hands out requests and collects outcomes."""

import dataclasses
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys

from harness.device_reports import DeviceMisuse, DeviceReports
from harness.outcome import Outcome

ROOM = pathlib.Path(__file__).resolve().parent.parent
#: Both allocators choose fixed segments where settings don't say, and of the same sizes, so that they can be compared.
USUAL = {"NPUALLOC_DEFAULT_ENGINE": "fixed", "NPUALLOC_SKIP_RUNGS": "ample_segments"}
#: Longest a scenario may take; far above any, against hanging.
SECONDS = 300
#: Servers kept at a time: each takes some 360 MB of host memory.
MOST_SERVERS = 8
#: Variables that nothing reads before torch_npu is imported begin with these.
READ_LATE = ("CANN_SIM_", "NPUALLOC_", "OOM_SNAPSHOT_", "PYTORCH_NPU_", "TASK_QUEUE_")


class Crash(Exception):
    """A scenario's process died, hung or failed on its way out."""


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a process ended."""

    status: int
    output: str
    #: None where it did not come to write one.
    outcome: Outcome | None

    @property
    def value(self):
        assert self.outcome is not None, f"status {self.status}\n{self.output}"
        return self.outcome.value


class Processes:
    """Runs scenarios, each in a process of its own."""

    def __init__(self, directory, plugin):
        self._directory = directory
        self._plugin = plugin
        self._servers = {}
        self._parent = None
        self._known = {}
        self._count = 0
        self._reports = DeviceReports(pathlib.Path(directory) / "reports")
        #: What the stock allocator did to the device: told, not failed.
        self.stock_findings = []

    def run(self, scenario, allocator, env=None, fresh=False, provokes=None, **arguments):
        """Outcome of `module:function` with these arguments.

        `env` is added to the process's environment before torch is imported.
        Processes with the same are forked from one another's parent, unless
        `fresh` asks for one that imports torch_npu itself, and torch where
        that may read one of the variables. Scenarios do the same
        each time, so one that has run with these arguments is not run again.

        Hazards and leaks on the simulated device fail the scenario, unless
        `provokes` says why it means to have some.
        """
        env = USUAL | (env or {})
        key = json.dumps([scenario, allocator, env, fresh, arguments], sort_keys=True)
        if key not in self._known:
            outcome = self._perform(scenario, allocator, env, fresh, arguments)
            self._check_device(scenario, allocator, env, outcome, provokes)
            self._known[key] = outcome
        return self._known[key]

    def leave(self, scenario, allocator, env=None, fresh=False, **arguments):
        """How a process ends after a scenario: exit status, what it wrote, the outcome or None.

        The process kills itself when that takes longer than four minutes (status -14).
        """
        request = self._request(scenario, allocator, arguments) | {"seconds": 240}
        status = self._status(request, env or {}, fresh)
        log = pathlib.Path(request["log"]).read_text(encoding="utf-8", errors="replace")
        outcome = pathlib.Path(request["outcome"])
        self._reports.take()
        told = None
        if outcome.exists():
            told = Outcome.from_json(outcome.read_text(encoding="utf-8"))
        return Ended(status, log, told)

    def _request(self, scenario, allocator, arguments):
        self._count += 1
        return {
            "scenario": scenario,
            "arguments": arguments,
            "plugin": str(self._plugin) if allocator == "npualloc" else None,
            "outcome": str(self._directory / f"{self._count}.json"),
            "log": str(self._directory / f"{self._count}.log"),
        }

    def _status(self, request, env, fresh):
        env = env | self._reports.environment
        if not fresh:
            return self._server(env).run(request)
        if not is_read_late(env):
            return run_alone(request, env)
        server = self._start(env, ready=False)
        status = server.run(request)
        server.close()
        return status

    def _perform(self, scenario, allocator, env, fresh, arguments):
        request = self._request(scenario, allocator, arguments)
        status = self._status(request, env, fresh)
        log = pathlib.Path(request["log"]).read_text(encoding="utf-8", errors="replace")
        if status != 0:
            raise Crash(f"{scenario} with {allocator} ended with status {status}:\n{log}")
        text = pathlib.Path(request["outcome"]).read_text(encoding="utf-8")
        return dataclasses.replace(Outcome.from_json(text), output=log)

    def _check_device(self, scenario, allocator, env, outcome, provokes):
        found = self._reports.take()
        if outcome.simulated and found is None:
            raise DeviceMisuse(f"{scenario} with {allocator} left no report of the device")
        found = [*(found or []), *outcome.imbalances]
        if not found or provokes:
            return
        text = f"{scenario} with {allocator} and {env}:\n  " + "\n  ".join(found[:20])
        if allocator == "stock":
            self.stock_findings.append(text)
        else:
            raise DeviceMisuse(f"{text}\n{outcome.output}")

    def close(self):
        for server in self._servers.values():
            server.close()
        if self._parent:
            self._parent.close()
        self._reports.take()

    def _server(self, env):
        key = tuple(sorted(env.items()))
        server = self._servers.pop(key, None) or self._start(env)
        # The last used is the last one.
        self._servers[key] = server
        if len(self._servers) > MOST_SERVERS:
            self._servers.pop(next(iter(self._servers))).close()
        return server


    def _start(self, env, ready=True):
        if not is_read_late(env):
            return Server(Started("harness.server", env=env))
        self._parent = self._parent or Parent()
        return Server(self._parent.fork(env, ready))


def is_read_late(env):
    return all(name.startswith(READ_LATE) for name in env)


def run_alone(request, env):
    """Runs a request in a process started for it; returns its exit status."""
    with open(request["log"], "wb") as log:
        done = subprocess.run(
            [sys.executable, "-m", "harness.child", json.dumps(request)],
            cwd=ROOM,
            env={**os.environ, **env},
            stdout=log,
            stderr=log,
            timeout=SECONDS,
            check=False,
        )
    return done.returncode


class Started:
    """A Python process that was started from nothing."""

    def __init__(self, module, *arguments, env=None, **options):
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOM,
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            **options,
        )
        self.input, self.output = self._process.stdin, self._process.stdout

    def kill(self):
        self._process.kill()

    def wait(self):
        self._process.wait(SECONDS)


class Forked:
    """A process that `Parent` forked."""

    def __init__(self, pid, input, output):
        self._pid = pid
        self.input, self.output = input, output

    def kill(self):
        os.kill(self._pid, signal.SIGKILL)

    def wait(self):
        """Until it has closed its output."""
        while select.select([self.output], [], [], SECONDS)[0]:
            if not self.output.readline():
                return
        self.kill()
        raise Crash(f"a scenarios' server did not end within {SECONDS} s")


class Parent:
    """A process with torch imported, and no torch_npu, to fork servers from."""

    def __init__(self):
        self._requests, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self._process = Started("harness.parent", str(number), pass_fds=[number])

    def fork(self, env, ready):
        """A server with these variables added to the environment, and torch_npu imported where it is to be ready."""
        (their_input, our_input), (our_output, their_output) = os.pipe(), os.pipe()
        ends = [their_input, their_output]
        socket.send_fds(self._requests, [json.dumps({"env": env, "ready": ready}).encode()], ends)
        for end in ends:
            os.close(end)
        ready, _, _ = select.select([self._requests], [], [], SECONDS)
        answer = self._requests.recv(64) if ready else b""
        if not answer:
            raise Crash("the servers' parent died, or did not answer")
        return Forked(int(answer), open(our_input, "w", buffering=1), open(our_output))

    def close(self):
        self._requests.close()
        self._process.wait()


class Server:
    """A process with a certain environment, to fork from."""

    def __init__(self, process):
        self._process = process
        self._answer("its start")

    def run(self, request):
        """Exit status of the process that did what the request says."""
        self._process.input.write(json.dumps(request) + "\n")
        self._process.input.flush()
        return self._answer(request["scenario"])

    def close(self):
        self._process.input.close()
        self._process.wait()

    def _answer(self, what):
        ready, _, _ = select.select([self._process.output], [], [], SECONDS)
        if not ready:
            self._process.kill()
            raise Crash(f"{what} took more than {SECONDS} s")
        line = self._process.output.readline()
        if not line:
            raise Crash(f"the scenarios' server died during {what}")
        return json.loads(line)
