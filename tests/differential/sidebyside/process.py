"""The tests' side of a driver process."""

import json
import os
import pathlib
import select
import subprocess
import sys

ROOM = pathlib.Path(__file__).resolve().parent.parent
#: Longest a script may take; far above any, against hanging.
SECONDS = 120
#: Operations from one look at the statistics to the next, where looking would change what is tested.
LOOK_EVERY = 16
#: Only what scripts launch takes virtual time: the two allocators need not make other calls equally often, and what runs on
#: the device is to be equally far on in both when they ask.
COSTS = "*=0;launch=2000"


class Driver:
    """A driver process with one allocator."""

    def __init__(self, plugin, conf, log, engine):
        self._log = open(log, "ab")
        env = {**os.environ, "TASK_QUEUE_ENABLE": "0", "PYTHONDONTWRITEBYTECODE": "1",
               "NPUALLOC_DEFAULT_ENGINE": engine, "NPUALLOC_SKIP_RUNGS": "ample_segments",
               "CANN_SIM_COSTS": COSTS}
        # Scripts decide about these.
        for name in ("NPUALLOC_PLUGIN", "NPUALLOC_DIFF_PLUGIN", "PYTORCH_ALLOC_CONF",
                     "PYTORCH_NPU_ALLOC_CONF"):
            env.pop(name, None)
        if plugin:
            env["NPUALLOC_DIFF_PLUGIN"] = str(plugin)
        if conf:
            env["PYTORCH_NPU_ALLOC_CONF"] = conf
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sidebyside.driver"], cwd=ROOM, env=env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, bufsize=1,
        )

    def ready(self):
        assert self.take() == "ready"

    def give(self, script, detailed=False, fresh_next=False, look_every=1):
        """Starts a script."""
        request = {"script": script, "detailed": detailed, "fresh_next": fresh_next,
                   "look_every": look_every}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def take(self):
        """What became of it."""
        ready, _, _ = select.select([self._process.stdout], [], [], SECONDS)
        if not ready:
            self._process.kill()
            raise TimeoutError(f"a script took more than {SECONDS} s")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a driver process died; see {self._log.name}")
        answer = json.loads(line)
        if "unusable" in answer:
            raise RuntimeError(answer["unusable"])
        return answer

    def close(self):
        self._process.stdin.close()
        try:
            self._process.wait(SECONDS)
        finally:
            self._log.close()


class Pair:
    """The stock allocator and npualloc, each in a driver process.

    `unasked`: npualloc has virtual segments because the driver maps memory, and so may keep
    freed blocks as they are, as long as nobody looks; stock has to be asked for virtual ones.
    """

    def __init__(self, plugin, conf, directory, unasked=False):
        self.conf = conf
        self.unasked = unasked
        stock = ",".join(filter(None, [conf, "expandable_segments:True"])) if unasked else conf
        #: Whether segments are virtual.
        self.virtual = "expandable_segments:True" in stock
        name = (stock or "default").replace(":", "-").replace(",", "_")
        # Settings that don't name an engine mean the same to both allocators, but where that is to differ.
        engine = "probe" if unasked else "fixed"
        self._drivers = [
            Driver(None, stock, f"{directory}/stock-{name}.log", engine),
            Driver(plugin, conf, f"{directory}/npualloc-{name}.log", engine),
        ]
        for driver in self._drivers:
            driver.ready()

    def run(self, script, detailed=False):
        """Outcomes of the script with each allocator; both run at once."""
        # A worker that was replaced with one allocator only would start the
        # next script with other event and segment numbers, which don't matter.
        short = any(operation[0] in ("capacity", "fraction") for operation in script)
        look_every = LOOK_EVERY if self.unasked and not short else 1
        for driver in self._drivers:
            driver.give(script, detailed, look_every=look_every)
        return [driver.take() for driver in self._drivers]

    def close(self):
        for driver in self._drivers:
            driver.close()
