"""npualloc as torch_npu's device-memory allocator.

Torch loads it by itself with `import torch` (entry point `torch.backends`); `import npualloc` does so too, and
raises ImportError where that is not possible. `NPUALLOC_DISABLE=1` leaves torch_npu's own allocator in place.
"""

import ctypes
import importlib.metadata
import operator
import os
import pathlib
import sys
import warnings

from . import _trace

__all__ = [
    "check_memory", "enabled", "load", "mark", "plugin_library", "pluggable_library", "sleep", "stats",
    "trace", "wake_up",
]
__version__ = importlib.metadata.version("npualloc")

_LIBRARIES = pathlib.Path(__file__).parent / "lib"
_plugin = None


def _disabled():
    return os.environ.get("NPUALLOC_DISABLE", "") not in ("", "0")


def _library(name):
    """The library for the installed torch_npu. Raises ImportError when there is none."""
    try:
        installed = importlib.metadata.version("torch-npu")
    except importlib.metadata.PackageNotFoundError:
        raise ImportError("npualloc: torch_npu is not installed") from None
    series = ".".join(installed.split(".")[:2])
    path = _LIBRARIES / series / name
    if not path.is_file():
        known = ", ".join(sorted(entry.name for entry in _LIBRARIES.iterdir()))
        raise ImportError(f"npualloc: no library for torch_npu {installed}, only for {known}")
    return path


def plugin_library():
    """Path of the plug-in for the installed torch_npu, for `torch.ops.load_library`."""
    return _library("libnpualloc_torch_npu.so")


def pluggable_library():
    """Path of the library for `torch_npu.npu.memory.NPUPluggableAllocator`."""
    return _library("libnpualloc_pluggable.so")


def load():
    """Puts npualloc in place of torch_npu's allocator, unless it is there or NPUALLOC_DISABLE is set.

    Raises ImportError when there is no library for the installed torch_npu, and OSError where torch_npu's
    allocator can't be replaced: an NPU is in use already, or one of npualloc's own variables is bad. The process
    keeps torch_npu's allocator then, and each further call raises again.
    """
    global _plugin
    if _disabled() or _plugin is not None:
        return
    path = str(plugin_library())
    import torch
    import torch_npu  # noqa: F401

    # Importing torch may have come by here already.
    if _plugin is not None:
        return
    torch.ops.load_library(path)
    plugin = ctypes.CDLL(path)
    # Only the first time that a process loads a library does its constructor run and raise.
    plugin.npualloc_load_error.restype = ctypes.c_char_p
    refused = plugin.npualloc_load_error()
    if refused is not None:
        raise OSError(refused.decode())
    _plugin = plugin
    if os.environ.get("NPUALLOC_TRACE"):
        _trace.watch(_plugin)


def enabled():
    """Whether npualloc is torch_npu's allocator now."""
    return _plugin is not None and _plugin.npualloc_is_registered() == 1


def stats(device=None):
    """npualloc's counters of a device (default: the current one), as in `torch.npu.memory_stats`.

    Bytes, blocks and calls, by dotted name; and, with the prefix `npualloc.`, how requests were
    served that no free block fitted. Raises RuntimeError while npualloc is not enabled.
    """
    if not enabled():
        raise RuntimeError("npualloc is not enabled")
    import torch

    index = _index(device)
    # Before the first use of an NPU torch_npu has no counters.
    torch.npu.init()
    counts = dict(torch.npu.memory_stats(index))
    _plugin.npualloc_ladder.restype = ctypes.c_char_p
    for line in (_plugin.npualloc_ladder(index) or b"").decode().splitlines():
        name, count = line.split()
        counts["npualloc." + name] = int(count)
    return counts


def sleep(device=None, pool=None):
    """Returns device memory to the driver and keeps its addresses; the contents are lost.

    Of a `torch.npu.MemPool` (or its id), or of the whole device: also memory of tensors in use, if it is in
    virtual segments (`expandable_segments`, the default where the driver can). Copy what is still needed
    first; don't use such tensors, nor share them with other processes, before `wake_up`. What sleeps serves
    no request. Returns the bytes. Raises RuntimeError for an unknown pool, while a graph is captured, for
    what NPUALLOC_DEBUG finds before contents are lost, and when the driver fails; what was not reached stays
    awake then. Raises ValueError for a number that no device, or no pool, can have.
    """
    return _change_memory("npualloc_sleep", device, pool)


def wake_up(device=None, pool=None):
    """Gives memory to what sleeps, at the same addresses, with no particular contents.

    Returns the bytes. Raises RuntimeError when there is not enough; the rest sleeps on, and the call can be
    repeated.
    """
    return _change_memory("npualloc_wake_up", device, pool)


def _change_memory(name, device, pool):
    if not enabled():
        raise RuntimeError("npualloc is not enabled")
    first, second = (0, 0) if pool is None else _pool_id(pool)
    changed = ctypes.c_uint64()
    _trace._call(
        _plugin, name, _index(device), ctypes.c_uint64(first), ctypes.c_uint64(second),
        int(pool is None), ctypes.byref(changed),
    )
    return changed.value


def _pool_id(pool):
    """The two numbers of a pool, given as a MemPool or as those."""
    numbers = getattr(pool, "id", pool)
    try:
        first, second = map(operator.index, numbers)
    except (TypeError, ValueError):
        raise TypeError(f"npualloc: pool is a MemPool or its two numbers, not {pool!r}") from None
    # ctypes would leave the upper bits of others out, and mean another pool.
    for number in (first, second):
        if not 0 <= number < 1 << 64:
            raise ValueError(f"npualloc: {number} is no number of a pool, which has 64 bits: {pool!r}")
    return first, second


def check_memory(device=None):
    """With NPUALLOC_DEBUG: waits for a device (default: the current one) and looks for memory faults.

    Returns how many bytes were looked at, 0 where contents are not checked. Raises RuntimeError for what
    was found now, or before and not raised yet; and while npualloc is not enabled.
    """
    if not enabled():
        raise RuntimeError("npualloc is not enabled")
    looked = ctypes.c_uint64()
    _plugin.npualloc_check_memory.restype = ctypes.c_char_p
    found = _plugin.npualloc_check_memory(_index(device), ctypes.byref(looked))
    if found is not None:
        raise RuntimeError(found.decode())
    return looked.value


def _index(device):
    """Number of a device given as in torch; of the current one for None."""
    import torch

    index = device if isinstance(device, int) and not isinstance(device, bool) else None
    if index is None and device is not None:
        named = torch.device(device)
        if named.type != "npu":
            raise ValueError(f"npualloc: {named} is no NPU")
        index = named.index
    if index is None:
        return torch.npu.current_device()
    count = torch.npu.device_count()
    # ctypes would leave the upper bits of others out, and mean another device.
    if not 0 <= index < count:
        raise ValueError(f"npualloc: there is no NPU {index}; there are {count}, numbered from 0")
    return index


def trace(path, stacks=None):
    """Starts to record what the program asks of the allocator, for the `npualloc` command-line tool.

    `%p` in the path stands for the process, `%r` for RANK; `path` of the result has them replaced. With
    `stacks` each allocation is recorded with its Python stack, which takes some microseconds of each; None is
    what `NPUALLOC_TRACE_STACKS` says. Use it as a context manager, or call `stop`;
    `NPUALLOC_TRACE=<path>` records from the first use of an NPU to the end of the process instead. Optimizer
    steps and synchronisations called from Python are recorded too. Raises RuntimeError while npualloc is not
    enabled, before the first use of an NPU, while another recording is under way, and when the file can't be
    made, and ValueError where a path (text, bytes or a Path) has a null byte.
    """
    if not enabled():
        raise RuntimeError("npualloc is not enabled")
    return _trace.Trace(_plugin, path, stacks)


def mark(label):
    """Puts a marker into the trace: a step or a phase begins. Nothing without a recording."""
    # Another thread may end the recording after the look.
    if _trace.is_on(_plugin):
        _trace.put_mark(_plugin, label)


def _autoload():
    """Called by torch at the end of `import torch`. A failure here must not take torch away."""
    try:
        load()
    except (ImportError, OSError) as error:
        reason = error
        while reason.__cause__ is not None:
            reason = reason.__cause__
        text = f"npualloc is not used: {str(reason).removeprefix('npualloc: ')}"
        try:
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        except RuntimeWarning:
            # Filters turn warnings into exceptions.
            print(text, file=sys.stderr)


def _is_torch_loading():
    """Whether torch is being imported and will call `_autoload`."""
    spec = getattr(sys.modules.get("torch"), "__spec__", None)
    return getattr(spec, "_initializing", False)


if not _is_torch_loading():
    load()
