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
        self._server = None
        self._count = 0

    def run(self, scenario, allocator, env=None, fresh=False, **arguments):
        """Outcome of `module:function` with these arguments.

        `env` is added to the process's environment before the device is used,
        and with `fresh` before torch is imported.
        """
        self._count += 1
        request = {
            "scenario": scenario,
            "arguments": arguments,
            "env": env or {},
            "plugin": str(self._plugin) if allocator == "npualloc" else None,
            "outcome": str(self._directory / f"{self._count}.json"),
            "log": str(self._directory / f"{self._count}.log"),
        }
        status = self._fresh(request) if fresh else self._forked(request)
        log = pathlib.Path(request["log"]).read_text(encoding="utf-8", errors="replace")
        if status != 0:
            raise Crash(f"{scenario} with {allocator} ended with status {status}:\n{log}")
        text = pathlib.Path(request["outcome"]).read_text(encoding="utf-8")
        return dataclasses.replace(Outcome.from_json(text), output=log)

    def close(self):
        if self._server is not None:
            self._server.stdin.close()
            self._server.wait(SECONDS)

    def _fresh(self, request):
        with open(request["log"], "wb") as log:
            command = [sys.executable, "-m", "harness.child", json.dumps(request)]
            env = {**os.environ, **request["env"]}
            done = subprocess.run(
                command, cwd=ROOM, env=env, stdout=log, stderr=log, timeout=SECONDS, check=False
            )
        return done.returncode

    def _forked(self, request):
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "harness.server"],
                cwd=ROOM,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            self._answer("the import of torch_npu")
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return self._answer(request["scenario"])

    def _answer(self, what):
        ready, _, _ = select.select([self._server.stdout], [], [], SECONDS)
        if not ready:
            self._server.kill()
            self._server = None
            raise Crash(f"{what} took more than {SECONDS} s")
        line = self._server.stdout.readline()
        if not line:
            raise Crash(f"the scenarios' server died during {what}")
        return json.loads(line)
