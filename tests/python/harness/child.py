"""The scenario's side: does what a request asks and writes the outcome.

`python -m harness.child REQUEST` does so in a process of its own from the
start, for what depends on the environment at import.
"""

import ctypes
import dataclasses
import importlib
import json
import signal
import sys


def load(torch, plugin):
    """Loads the plug-in; what follows would be of the stock allocator if it left that in place, as NPUALLOC_DISABLE has
    it."""
    torch.ops.load_library(plugin)
    if ctypes.CDLL(plugin).npualloc_is_registered() != 1:
        raise AssertionError(f"{plugin} is loaded, but its allocator is not in use")


def perform(request):
    """Runs the scenario of a request and writes its outcome to a file.

    The plug-in is loaded at the place a user's script would load it: after
    torch_npu, before the device is used.
    """
    from harness.balance import imbalances, simulator
    from harness.outcome import Error, Outcome

    if request.get("seconds"):
        signal.alarm(request["seconds"])
    try:
        import torch
        import torch_npu  # noqa: F401

        if request["plugin"]:
            load(torch, request["plugin"])
        module, _, function = request["scenario"].partition(":")
        scenario = getattr(importlib.import_module(f"scenarios.{module}"), function)
        result = scenario(**request["arguments"])
        # A process that is to show how it ends may have a device that does not answer.
        outcome = Outcome(result, imbalances=imbalances(torch) if "seconds" not in request else ())
    except Exception as error:
        outcome = Outcome(error=Error.of(error))
    outcome = dataclasses.replace(outcome, simulated=simulator() is not None)
    with open(request["outcome"], "w", encoding="utf-8") as file:
        file.write(outcome.to_json())


if __name__ == "__main__":
    perform(json.loads(sys.argv[1]))
