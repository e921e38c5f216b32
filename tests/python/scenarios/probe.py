"""The probe: virtual methods of the allocator in place, called as torch_npu's C++ code does."""

import ctypes
import os

import torch

#: What each function takes and gives: q and Q 64-bit numbers, i an int, z a size, b bytes.
CALLS = {
    "initialized": ("", "i"),
    "allocate": ("z", "q"),
    "allocate_with_aligned": ("zz", "q"),
    "block": ("q", "QQii"),
    "free": ("q", ""),
    "foreign": ("", "q"),
    "raw_alloc": ("z", "Q"),
    "raw_alloc_with_stream": ("zQ", "Q"),
    "raw_delete": ("Q", ""),
    "raw_deleter": ("Q", ""),
    "copy_data": ("QQz", ""),
    "base_allocation": ("Q", "Qz"),
    "base_address": ("Q", "Q"),
    "record_stream": ("qiq", ""),
    "record_c10_stream": ("qiq", ""),
    "erase_stream": ("qiq", ""),
    "block_ptr": ("q", "Q"),
    "record_work": ("QQ", ""),
    "erase_work": ("QiqQ", ""),
    "clean_event": ("", ""),
    "cache_info": ("i", "zz"),
    "empty_pool": ("QQ", ""),
    "empty_cache": ("i", ""),
    "empty_cache_impl": ("ii", ""),
    "empty_virt_addr_cache": ("i", ""),
    "free_device_cached_memory": ("i", ""),
    "memory_info": ("i", "zz"),
    "pool_create": ("iQQ", ""),
    "pool_create_own": ("iQQ", ""),
    "pool_create_busy": ("iQQ", ""),
    "pool_own_gone": ("", "ii"),
    "pool_begin": ("iQQQ", ""),
    "pool_end": ("iQQ", ""),
    "pool_release": ("iQQ", ""),
    "pool_use_count": ("iQQ", "i"),
    "pool_use_on_oom": ("iQQi", ""),
    "pool_no_split": ("iQQ", ""),
    "capture_begin": ("i", ""),
    "capture_end": ("i", ""),
    "captures_underway": ("i", "i"),
    "checkpoint": ("iQQ", "q"),
    "checkpoint_foreign": ("", "q"),
    "observe_oom": ("", ""),
    "observe_oom_allocating": ("z", ""),
    "observe_rejection": ("", ""),
    "observe_rejection_failing": ("", ""),
    "track": ("", ""),
    "track_failing": ("", ""),
    "register_callback": ("", ""),
    "record_history": ("iizi", ""),
    "history_enabled": ("", "i"),
    "snapshot": ("iQQ", "zzzz"),
    "close": ("q", ""),
    "close_began": ("", "i"),
    "check_uce": ("i", "i"),
    "block_is_safe": ("q", "i"),
    "mark_all_unsafe": ("i", ""),
    "update_to_safe": ("q", ""),
    "build_map": ("ii", ""),
}
KINDS = {"q": ctypes.c_int64, "Q": ctypes.c_uint64, "i": ctypes.c_int, "z": ctypes.c_size_t}


class ProbeError(Exception):
    """A C++ exception: its class and its text."""


class Probe:
    """`probe.name(…)` calls a method; several results come as a tuple."""

    def __init__(self, init=True, hccl=True):
        if init:
            torch.npu.init()
        # HCCL's functions in it must be found by name, unless they are to be missing.
        mode = ctypes.RTLD_GLOBAL if hccl else ctypes.RTLD_LOCAL
        self._library = ctypes.CDLL(os.environ["NPUALLOC_PROBE"], mode=mode)
        for name in ("error_type", "error_text"):
            getattr(self._library, "probe_" + name).restype = ctypes.c_char_p

    def __getattr__(self, name):
        takes, gives = CALLS[name]

        def call(*arguments):
            results = [KINDS[kind]() for kind in gives]
            given = [KINDS[kind](value) for kind, value in zip(takes, arguments, strict=True)]
            self._check(name, *given, *map(ctypes.byref, results))
            values = tuple(result.value for result in results)
            return values[0] if len(values) == 1 else values or None

        return call

    def _check(self, name, *arguments):
        if getattr(self._library, "probe_" + name)(*arguments):
            kind = self._library.probe_error_type().decode()
            raise ProbeError(kind, self._library.probe_error_text().decode())

    def name(self):
        text = ctypes.create_string_buffer(100)
        self._check("name", text, ctypes.c_size_t(100))
        return text.value.decode()

    def restore(self, device, state):
        """Number of blocks freed, and the blocks that live again."""
        freed, count = ctypes.c_size_t(), ctypes.c_size_t(100)
        made = (ctypes.c_int64 * 100)()
        self._check("restore", ctypes.c_int(device), ctypes.c_int64(state), ctypes.byref(freed),
                    made, ctypes.byref(count))
        return freed.value, list(made[: count.value])

    def cache_info_onto(self, device, total, largest):
        """The results of `cache_info`, which begins with these."""
        counts = ctypes.c_size_t(total), ctypes.c_size_t(largest)
        self._check("cache_info", ctypes.c_int(device), *map(ctypes.byref, counts))
        return [count.value for count in counts]

    def pool_live(self, device, first, second, addresses):
        live = ctypes.c_int()
        self._check("pool_live", ctypes.c_int(device), ctypes.c_uint64(first),
                    ctypes.c_uint64(second), (ctypes.c_uint64 * len(addresses))(*addresses),
                    ctypes.c_size_t(len(addresses)), ctypes.byref(live))
        return bool(live.value)

    def share(self, address):
        """The text for another process, and the offset in it."""
        text, size = ctypes.create_string_buffer(1 << 20), ctypes.c_size_t(1 << 20)
        offset = ctypes.c_int64()
        self._check("share", ctypes.c_uint64(address), text, ctypes.byref(size),
                    ctypes.byref(offset))
        return text.raw[: size.value], offset.value

    def open(self, text):
        """A number to close it with, and the address."""
        number, address = ctypes.c_int64(), ctypes.c_uint64()
        self._check("open", text, ctypes.c_size_t(len(text)), ctypes.byref(number),
                    ctypes.byref(address))
        return number.value, address.value

    def driver_memory(self, size):
        """Memory of the device that the allocator knows nothing of."""
        self._library.probe_own_malloc.restype = ctypes.c_void_p
        return self._library.probe_own_malloc(ctypes.c_size_t(size), 0, None)

    def hoard(self, block):
        self._library.probe_hoard(ctypes.c_int64(block))

    def hccl_result(self, code):
        self._library.probe_hccl_result(ctypes.c_int(code))

    def hccl_result_after(self, code, calls):
        self._library.probe_hccl_result_after(ctypes.c_int(code), ctypes.c_int(calls))

    def own_counts(self):
        allocs, frees = ctypes.c_int(), ctypes.c_int()
        self._library.probe_own_counts(ctypes.byref(allocs), ctypes.byref(frees))
        return [allocs.value, frees.value]

    def log(self):
        """What observers, trackers and callbacks were told."""
        return self._lines("log")

    def hccl_calls(self):
        return self._lines("hccl_calls")

    def _lines(self, name):
        text = ctypes.create_string_buffer(1 << 20)
        assert getattr(self._library, "probe_" + name)(text, ctypes.c_size_t(1 << 20)) == 0
        return [line.split() for line in text.value.decode().splitlines()]

    def data(self, block):
        return self.block(block)[0]


def refused(function, *arguments):
    """Class and first line of the C++ exception of a call; None without one."""
    try:
        function(*arguments)
    except ProbeError as error:
        kind, text = error.args
        return {"types": [kind], "line": text.splitlines()[0] if text else ""}
    return None
