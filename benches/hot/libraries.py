"""The libraries that are measured with: the benchmark's own and npualloc's."""

import ctypes

import torch

# Subjects of the C++ side.
STOCK, NPUALLOC = 0, 1
SUBJECTS = (STOCK, NPUALLOC)


class Failed(Exception):
    """A call of the C++ side failed, settings were refused, or the simulator does not do what a case needs."""


class Bench:
    """The C++ side."""

    def __init__(self, path):
        library = ctypes.CDLL(path)
        pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
        signatures = {
            "error": (text, []),
            "keep": (None, [ctypes.c_int]),
            "current": (ctypes.c_int, [ctypes.c_int]),
            "init": (ctypes.c_int, [ctypes.c_int]),
            "device": (ctypes.c_int, [ctypes.c_int]),
            "empty_cache": (ctypes.c_int, [ctypes.c_int]),
            "limit": (ctypes.c_int, [ctypes.c_int, ctypes.c_double]),
            "open": (pointer, [ctypes.c_int, text, pointer]),
            "open_replay": (pointer, [ctypes.c_int, pointer, size, pointer]),
            "close": (None, [pointer]),
            "operations": (ctypes.c_double, [pointer]),
            "round": (ctypes.c_double, [ctypes.c_int, pointer, ctypes.c_uint64]),
            "loop": (ctypes.c_double, [ctypes.c_int, pointer, ctypes.c_uint64]),
            "two_threads": (ctypes.c_double, []),
            "latencies": (size, [ctypes.c_int, pointer, ctypes.c_uint64, pointer, size]),
            "clock_cost": (ctypes.c_double, []),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(library, f"bench_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def checked(self, result):
        """The result of a call, unless it failed."""
        failure = self.error()
        if failure:
            raise Failed(failure.decode(errors="replace"))
        return result


class Plugin:
    """npualloc's library."""

    def __init__(self, path):
        torch.ops.load_library(path)
        self._library = ctypes.CDLL(path)
        self._library.npualloc_check_consistency.restype = ctypes.c_char_p

    def check(self):
        """Recounts every invariant."""
        broken = self._library.npualloc_check_consistency()
        if broken is not None:
            raise Failed(f"npualloc is inconsistent: {broken.decode(errors='replace')}")
