"""The tests' side: hands out requests and collects outcomes."""

import dataclasses
import json
import os
import pathlib
import select
import subprocess
import sys

from harness.outcome import Outcome

ROOM = pathlib.Path(__file__).resolve().parent.parent
#: Longest a scenario may take; far above any, against hanging.
SECONDS = 300


class Crash(Exception):
    """A scenario's process died, hung or failed on its way out."""


class Processes:
    """Runs scenarios, each in a process of its own."""

    def __init__(self, directory, plugin):
        self._directory = directory
        self._plugin = plugin
        self._servers = {}
        self._known = {}
        self._count = 0

    def run(self, scenario, allocator, env=None, fresh=False, **arguments):
        """Outcome of `module:function` with these arguments.

        `env` is added to the process's environment before torch is imported.
        Processes with the same are forked from one another's parent, unless
        `fresh` asks for one that starts from nothing. Scenarios do the same
        each time, so one that has run with these arguments is not run again.
        """
        env = env or {}
        key = json.dumps([scenario, allocator, env, fresh, arguments], sort_keys=True)
        if key not in self._known:
            self._known[key] = self._perform(scenario, allocator, env, fresh, arguments)
        return self._known[key]

    def _perform(self, scenario, allocator, env, fresh, arguments):
        self._count += 1
        request = {
            "scenario": scenario,
            "arguments": arguments,
            "plugin": str(self._plugin) if allocator == "npualloc" else None,
            "outcome": str(self._directory / f"{self._count}.json"),
            "log": str(self._directory / f"{self._count}.log"),
        }
        status = run_alone(request, env) if fresh else self._server(env).run(request)
        log = pathlib.Path(request["log"]).read_text(encoding="utf-8", errors="replace")
        if status != 0:
            raise Crash(f"{scenario} with {allocator} ended with status {status}:\n{log}")
        text = pathlib.Path(request["outcome"]).read_text(encoding="utf-8")
        return dataclasses.replace(Outcome.from_json(text), output=log)

    def close(self):
        for server in self._servers.values():
            server.close()

    def _server(self, env):
        key = tuple(sorted(env.items()))
        if key not in self._servers:
            self._servers[key] = Server(env)
        return self._servers[key]


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


class Server:
    """A process with torch_npu imported in a certain environment, to fork from."""

    def __init__(self, env):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.server"],
            cwd=ROOM,
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._answer("the import of torch_npu")

    def run(self, request):
        """Exit status of the process that did what the request says."""
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer(request["scenario"])

    def close(self):
        self._process.stdin.close()
        self._process.wait(SECONDS)

    def _answer(self, what):
        ready, _, _ = select.select([self._process.stdout], [], [], SECONDS)
        if not ready:
            self._process.kill()
            raise Crash(f"{what} took more than {SECONDS} s")
        line = self._process.stdout.readline()
        if not line:
            raise Crash(f"the scenarios' server died during {what}")
        return json.loads(line)
