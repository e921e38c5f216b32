"""Configuration strings, in the environment and at run time, each in a process of its own."""

import json
import os
import re

import torch

from scenarios.common import MIB, allocate, pick, stats


def table(rows, plugin=None):
    """What becomes of each [where, text]: the exception, or what is allocated afterwards."""
    return [apart(outcome, where, text, plugin) for where, text in rows]


def apart(task, *arguments):
    """What a task returns in a forked process. The device was not used here, so that is as good as
    new; the plug-in reads the environment when it is loaded."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, json.dumps(task(*arguments)).encode())
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
        return described(error)
    keep.append(allocate(25 * MIB + 4321))
    return ["ok", stats()["requested_bytes.all.current"]]


def described(error):
    """Its class, code and first line."""
    message = str(error)
    code = re.search(r"ERR\d{5}", message)
    return [type(error).__name__, code.group() if code else "-", message.split("\n")[0]]


def for_all_accelerators(texts):
    """What becomes of each text given by torch's own function, after the device was used."""
    return [apart(given_to_torch, text) for text in texts]


def given_to_torch(text):
    torch.npu.init()
    keep = [allocate(700)]
    error = None
    try:
        torch._C._accelerator_setAllocatorSettings(text)
    except Exception as raised:
        error = described(raised)
    # Sizes that divisions of powers of two, segments and pages round differently.
    keep += [allocate(size) for size in (5 * MIB + 1, 18 * MIB, 33 * MIB)]
    return [error, pick(stats(), "allocated_bytes.all.current", "reserved_bytes.all.current")]


def warned():
    """A process with a setting that torch_npu warns of."""
    return allocate(3 * MIB).nbytes


def of_the_environment():
    """What a process makes of its variables."""
    try:
        keep = [allocate(5 * MIB + 1), allocate(40 * MIB)]
    except Exception as raised:
        return [type(raised).__name__, str(raised).split("\n")[0]]
    kinds = sorted({segment["is_expandable"] for segment in torch.npu.memory_snapshot()})
    split = torch.npu.memory_stats()["max_split_size"]
    return [kinds, split, pick(stats(), "allocated_bytes.all.current"), len(keep)]


def given_in_turn(texts):
    """Whether a free block of 100 MiB serves a smaller request, after each text given at run time."""
    found = []
    for text in texts:
        torch.npu.memory._set_allocator_settings(text)
        allocate(100 * MIB)
        smaller = allocate(40 * MIB)
        found.append(torch.npu.memory_reserved() < 140 * MIB)
        del smaller
        torch.npu.empty_cache()
    return found


def environment_changed_late(plugin, text):
    """The environment is set after settings were given for the first time: fraction of the device's memory."""
    return apart(changed_late, plugin, text)


def changed_late(plugin, text):
    if plugin:
        torch.ops.load_library(plugin)
    torch.npu.memory._set_allocator_settings("max_split_size_mb:30")
    os.environ["PYTORCH_NPU_ALLOC_CONF"] = text
    keep = allocate(3 * MIB)
    return [torch.npu.get_per_process_memory_fraction(), keep.nbytes]


def early(text):
    """Settings given before the device is used: whether it was not, and what holds once it is."""
    before = torch.npu.is_initialized()
    torch.npu.memory._set_allocator_settings(text)
    after = torch.npu.is_initialized()
    kept = allocate(3 * MIB)
    return [before, after, torch.npu.memory.get_per_process_memory_fraction(), kept.nbytes]
