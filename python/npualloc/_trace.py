"""Recording what a program asks of the allocator: `npualloc.trace`, `npualloc.mark`, `NPUALLOC_TRACE`."""

import ctypes
import functools
import os

_watching = False


def _call(plugin, name, *arguments):
    function = getattr(plugin, name)
    function.restype = ctypes.c_char_p
    failure = function(*arguments)
    if failure is not None:
        raise RuntimeError(failure.decode())


def is_on(plugin):
    """Whether a recording is under way."""
    return plugin is not None and plugin.npualloc_trace_is_on() == 1


class Trace:
    """A recording under way. As a context manager it ends with the block."""

    def __init__(self, plugin, path, stacks=None):
        self._plugin = plugin
        #: Where it goes.
        self.path = path
        #: Bytes written, once it is over.
        self.size = None
        watch(plugin)
        if stacks is None:
            stacks = os.environ.get("NPUALLOC_TRACE_STACKS", "") not in ("", "0")
        plugin.npualloc_trace_stacks(int(bool(stacks)))
        _call(plugin, "npualloc_trace_start", str(path).encode())

    def mark(self, label):
        """A step or a phase begins."""
        _call(self._plugin, "npualloc_trace_mark", str(label).encode())

    def stop(self):
        """Ends it; the file is complete then. Raises RuntimeError where it could not be written."""
        written = ctypes.c_uint64()
        _call(self._plugin, "npualloc_trace_stop", ctypes.byref(written))
        self.size = written.value

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.size is None and is_on(self._plugin):
            self.stop()


def watch(plugin):
    """From now on synchronisations and optimizer steps made from Python are recorded where a recording is
    under way."""
    global _watching
    if _watching:
        return
    _watching = True
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def synchronized(stream):
        if is_on(plugin):
            _call(plugin, "npualloc_trace_synchronized", ctypes.c_void_p(stream))

    device_synchronize = torch.npu.synchronize
    stream_synchronize = torch.npu.Stream.synchronize

    @functools.wraps(device_synchronize)
    def synchronize(*arguments, **options):
        result = device_synchronize(*arguments, **options)
        synchronized(None)
        return result

    @functools.wraps(stream_synchronize)
    def synchronize_stream(self, *arguments, **options):
        result = stream_synchronize(self, *arguments, **options)
        synchronized(self.npu_stream)
        return result

    torch.npu.synchronize = synchronize
    torch.npu.Stream.synchronize = synchronize_stream
    steps = 0

    def stepped(*_):
        nonlocal steps
        steps += 1
        if is_on(plugin):
            _call(plugin, "npualloc_trace_mark", f"step {steps}".encode())

    register_optimizer_step_post_hook(stepped)
