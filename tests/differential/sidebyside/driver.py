"""A driver process: `python -m sidebyside.driver`.

Imports torch and torch_npu once, then forks a worker that executes scripts;
when a worker can't return to a clean state, or dies, the next one is forked.
One JSON a line on standard input and output. With NPUALLOC_DIFF_PLUGIN in the
environment each worker loads that plug-in before it touches the device.
"""

import ctypes
import json
import os
import sys

ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import torch  # noqa: E402
import torch_npu  # noqa: E402, F401

#: Status of a worker that asks for a successor.
AGAIN = 17


def answer(value):
    print(json.dumps(value), file=ANSWERS, flush=True)


def work():
    """Executes scripts until the input ends (0) or a fresh process is needed."""
    from sidebyside.machine import Machine, NotClean

    plugin = os.environ.get("NPUALLOC_DIFF_PLUGIN")
    if plugin:
        torch.ops.load_library(plugin)
        if ctypes.CDLL(plugin).npualloc_is_registered() != 1:
            answer({"unusable": f"{plugin} is loaded, but its allocator is not in use: stock against stock"})
            # Whoever asks next is to read that, not to meet a closed pipe.
            sys.stdin.read()
            return 0
    machine = Machine()
    while True:
        line = sys.stdin.readline()
        if not line:
            return 0
        request = json.loads(line)
        outcome = machine.run(request["script"], request["detailed"], request["look_every"])
        try:
            machine.clean()
            outcome["unclean"] = None
            outcome["device"] = machine.device.findings()
        except NotClean as reason:
            outcome["unclean"] = str(reason)
        except Exception as reason:
            outcome["unclean"] = str(machine.failure(reason))
        answer(outcome)
        if outcome["unclean"] is not None or request["fresh_next"]:
            return AGAIN


def main():
    answer("ready")
    while True:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                status = work()
            except BaseException as error:
                answer({"crash": f"{type(error).__name__}: {error}"})
            finally:
                os._exit(status)
        _, status = os.waitpid(pid, 0)
        status = os.waitstatus_to_exitcode(status)
        if status < 0:
            answer({"crash": f"signal {-status}"})
        elif status != AGAIN and status != 1:
            return


if __name__ == "__main__":
    main()
