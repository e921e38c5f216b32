"""What several scenarios need."""

import ctypes

import torch
import torch_npu  # noqa: F401

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30



def allocate(size, device=None):
    """A tensor of that many bytes. Its memory is not written."""
    return torch.empty(size, dtype=torch.uint8, device=device or "npu")


def stats(device=None):
    """All of torch_npu's statistics."""
    return dict(torch.npu.memory_stats(device))


def both_stats(device=None):
    """The statistics as torch_npu and as torch.accelerator give them."""
    return {
        "npu": stats(device),
        "accelerator": dict(torch.accelerator.memory_stats(device)),
    }


def ladder(plugin):
    """How the plug-in served requests that no free block fitted: counts by name."""
    text = ctypes.CDLL(plugin).npualloc_ladder
    text.restype = ctypes.c_char_p
    lines = (line.split() for line in text(0).decode().splitlines())
    return {name: int(count) for name, count in lines}


def pick(values, *names):
    """Some of the statistics."""
    return {name: values[name] for name in names}


def causes(error):
    """What the exceptions that led to this one say."""
    lines = []
    while error.__cause__ is not None:
        error = error.__cause__
        lines.append(str(error))
    return "\n".join(lines)


def caught(function, *arguments, **options):
    """Class and first line of the exception that a call raises; None without one."""
    try:
        function(*arguments, **options)
    except Exception as error:
        lines = str(error).splitlines()
        return {
            "types": [f"{t.__module__}.{t.__qualname__}" for t in type(error).__mro__],
            "line": lines[0] if lines else "",
            "message": str(error),
            "cause": causes(error),
        }
    return None


def caught_unchanged(function, *arguments, **options):
    """Like `caught`, with whether the statistics of device 0 stayed the same."""
    before = stats(0)
    error = caught(function, *arguments, **options)
    return {"error": error, "unchanged": stats(0) == before}
