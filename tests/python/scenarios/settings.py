"""Configuration strings, in the environment and at run time, each in a process of its own."""

import json
import os
import re

import torch

from scenarios.common import MIB, allocate, stats


def table(rows, plugin=None):
    """What becomes of each [where, text]: the exception, or what is allocated afterwards."""
    return [apart(where, text, plugin) for where, text in rows]


def apart(where, text, plugin):
    """One string in a forked process. The device was not used here, so that is as good as new;
    the plug-in reads the environment when it is loaded."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, json.dumps(outcome(where, text, plugin)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as file:
        answer = file.read()
    os.waitpid(pid, 0)
    return json.loads(answer) if answer else ["died"]


def outcome(where, text, plugin):
    if where == "parse":
        os.environ["PYTORCH_NPU_ALLOC_CONF"] = text
    if plugin:
        torch.ops.load_library(plugin)
    try:
        if where == "run":
            torch.npu.init()
            torch.npu.memory._set_allocator_settings(text)
        keep = [allocate(3 * MIB)]
    except Exception as error:
        message = str(error)
        code = re.search(r"ERR\d{5}", message)
        return [type(error).__name__, code.group() if code else "-", message.split("\n")[0]]
    keep.append(allocate(25 * MIB + 4321))
    return ["ok", stats()["requested_bytes.all.current"]]


def warned():
    """A process with a setting that torch_npu warns of."""
    return allocate(3 * MIB).nbytes
