"""Recording what a program asks of the allocator: `npualloc.trace`, `npualloc.mark`, `NPUALLOC_TRACE`."""

import ctypes
import functools
import multiprocessing
import multiprocessing.util
import os
import pathlib

_watching = False


def _call(plugin, name, *arguments):
    function = getattr(plugin, name)
    function.restype = ctypes.c_char_p
    failure = function(*arguments)
    if failure is not None:
        raise RuntimeError(failure.decode(errors="backslashreplace"))


def is_on(plugin):
    """Whether a recording is under way."""
    return plugin is not None and plugin.npualloc_trace_is_on() == 1


def _expand(path):
    """The path with `%p` and `%r` replaced, as text or as a Path. Raises ValueError where it can't be a path."""
    text = os.fsdecode(path)
    if "\0" in text:
        raise ValueError(f"npualloc: no trace: null byte in the path {text!r}")
    text = text.replace("%p", str(os.getpid())).replace("%r", os.environ.get("RANK", "0"))
    return pathlib.Path(text) if isinstance(path, os.PathLike) else text


#: In place of a recording's number: whichever is under way.
_ANY = 0
_OVER = "npualloc: no trace is being written"


def put_mark(plugin, label, recording=_ANY):
    """A marker, without what a line of a trace can't hold. Whether there was a recording to put it into."""
    text = str(label).replace("\0", " ").encode(errors="replace")
    noted = ctypes.c_int()
    _call(plugin, "npualloc_trace_note", ctypes.c_uint64(recording), text, ctypes.byref(noted))
    return noted.value == 1


class Trace:
    """A recording under way. As a context manager it ends with the block."""

    def __init__(self, plugin, path, stacks=None):
        self._plugin = plugin
        #: Where it goes.
        self.path = _expand(path)
        #: Bytes written, once it is over.
        self.size = None
        watch(plugin)
        if stacks is None:
            stacks = os.environ.get("NPUALLOC_TRACE_STACKS", "") not in ("", "0")
        plugin.npualloc_trace_stacks(int(bool(stacks)))
        number = ctypes.c_uint64()
        _call(plugin, "npualloc_trace_begin", os.fsencode(self.path), ctypes.byref(number))
        self._number = number.value

    def mark(self, label):
        """A step or a phase begins. Raises RuntimeError once the recording is over."""
        if not put_mark(self._plugin, label, self._number):
            raise RuntimeError(_OVER)

    def stop(self):
        """Ends it; the file is complete then. Raises RuntimeError where it could not be written or is over."""
        if not self._end():
            raise RuntimeError(_OVER)

    def _end(self):
        """Ends it. Whether it was under way."""
        written, ended = ctypes.c_uint64(), ctypes.c_int()
        _call(self._plugin, "npualloc_trace_end", ctypes.c_uint64(self._number), ctypes.byref(written),
              ctypes.byref(ended))
        if ended.value == 1:
            self.size = written.value
        return ended.value == 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._end()


def _end_with_children(plugin):
    """Has a recording end, and its file be complete, with a process that `multiprocessing` began: where
    such a process is forked, it ends without the exit functions of Python and of the C library."""

    def register(_=None):
        # After all other finalizers.
        multiprocessing.util.Finalize(None, plugin.npualloc_trace_end_of_process, exitpriority=-1000)

    if multiprocessing.parent_process() is not None:
        register()
    # A forked child forgets its parent's finalizers, and then calls this.
    multiprocessing.util.register_after_fork(plugin, register)


def watch(plugin):
    """From now on optimizer steps, and events recorded and waited for from Python, are recorded where a
    recording is under way. The plug-in sees waits for streams and devices itself."""
    global _watching
    if _watching:
        return
    _watching = True
    _end_with_children(plugin)
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    event_record = torch.npu.Event.record
    event_synchronize = torch.npu.Event.synchronize

    @functools.wraps(event_record)
    def record(self, stream=None):
        result = event_record(self, stream)
        if is_on(plugin):
            used = torch.npu.current_stream() if stream is None else stream
            _call(plugin, "npualloc_trace_event_recorded", ctypes.c_void_p(self.npu_event),
                  used.device_index, ctypes.c_int64(used.stream_id))
        return result

    @functools.wraps(event_synchronize)
    def synchronize(self):
        result = event_synchronize(self)
        if is_on(plugin):
            _call(plugin, "npualloc_trace_event_waited", ctypes.c_void_p(self.npu_event))
        return result

    torch.npu.Event.record = record
    torch.npu.Event.synchronize = synchronize
    steps = 0

    def stepped(*_):
        nonlocal steps
        steps += 1
        if is_on(plugin):
            put_mark(plugin, f"step {steps}")

    register_optimizer_step_post_hook(stepped)
