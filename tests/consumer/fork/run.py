"""Runs npualloc in fork mode in a process of the stock wheel.

The library is loaded before torch_npu, so that the wheel's code finds its `allocator` pointer first. (Calls of
the other functions are bound inside the wheel's library; they are made from here.) Stand-ins take the place of
what the wheel hides, and keep what npualloc tells them.

    python run.py libtorch_npu_runnable.so [unittest's options]
"""

import ctypes
import os
import pathlib
import sys
import tempfile
import unittest

LIBRARY = sys.argv.pop(1)

MIB = 1 << 20
MALLOC, FREE, BLOCK_FREE = 0, 1, 2
FIELDS = [
    "kind",
    "external",
    "component",
    "device",
    "ptr",
    "size",
    "allocated",
    "reserved",
    "active",
    "stream",
]
SPACE = "_ZN7c10_npu19NPUCachingAllocator"

try:
    ctypes.CDLL("libascendcl.so", ctypes.RTLD_GLOBAL)
except OSError as error:
    print(f"skipped: no device runtime: {error}")
    sys.exit(77)

# Torch must not load torch_npu by itself: it would be too early.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch  # noqa: E402

# Its dependency, the wheel's libtorch_npu.so, is loaded with it and looks for symbols here first; so do libraries
# that come later.
tree = ctypes.CDLL(LIBRARY, ctypes.RTLD_GLOBAL)

import torch_npu  # noqa: E402,F401


def function(name, result, *arguments):
    found = getattr(tree, name)
    found.restype = result
    found.argtypes = arguments
    return found


malloc_block = function(
    f"{SPACE}11MallocBlockEmPvi", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
)
free_block = function(f"{SPACE}9FreeBlockEPv", None, ctypes.c_void_p)
block_ptr = function(f"{SPACE}11GetBlockPtrEPKv", ctypes.c_void_p, ctypes.c_void_p)
block_size = function(f"{SPACE}12GetBlockSizeEPKv", ctypes.c_size_t, ctypes.c_void_p)
set_settings = function("tree_set_settings", ctypes.c_char_p, ctypes.c_char_p)
format_size = function("tree_format_size", ctypes.c_char_p, ctypes.c_uint64)
free_again = function("tree_free_block", ctypes.c_char_p, ctypes.c_void_p)
look_at_block = function("tree_look_at_block", ctypes.c_char_p, ctypes.c_void_p)
set_bad_memory = function("tree_set_bad_memory", None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
take_report = function("tree_take_report", ctypes.c_int, ctypes.POINTER(ctypes.c_int64))


def library_of(address):
    """The file that an address belongs to."""

    class Info(ctypes.Structure):
        _fields_ = [
            ("file", ctypes.c_char_p),
            ("base", ctypes.c_void_p),
            ("symbol", ctypes.c_char_p),
            ("address", ctypes.c_void_p),
        ]

    info = Info()
    dladdr = ctypes.CDLL(None).dladdr
    dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(Info)]
    assert dladdr(address, ctypes.byref(info)) != 0
    return pathlib.Path(info.file.decode()).name


def word_at(address):
    return ctypes.c_uint64.from_address(address).value


def reports():
    """What the profiler was told since the last call."""
    taken = []
    values = (ctypes.c_int64 * len(FIELDS))()
    while take_report(values):
        taken.append(dict(zip(FIELDS, values)))
    return taken


def allocate(size):
    return torch.empty(size, dtype=torch.uint8, device="npu")


def stats():
    found = torch.npu.memory_stats()
    return {
        "allocated": found["allocated_bytes.all.current"],
        "reserved": found["reserved_bytes.all.current"],
        "active": found["active_bytes.all.current"],
    }


class ForkMode(unittest.TestCase):
    def setUp(self):
        torch.npu.init()
        torch.npu.synchronize()
        torch.npu.empty_cache()

    def test_the_wheels_code_uses_npualloc(self):
        # The pointer the wheel reads is the library's, and so is the object it points to.
        pointer = ctypes.c_uint64.in_dll(tree, f"{SPACE}9allocatorE")
        self.assertEqual(library_of(ctypes.addressof(pointer)), pathlib.Path(LIBRARY).name)
        virtual_functions = word_at(pointer.value)
        self.assertEqual(library_of(virtual_functions), pathlib.Path(LIBRARY).name)
        # Torch's own registration too.
        self.assertEqual(torch.npu.memory_allocated(), torch.accelerator.memory_allocated())
        before = stats()["allocated"]
        tensor = allocate(3 * MIB)
        self.assertEqual(stats()["allocated"], before + 3 * MIB + 512)
        self.assertEqual(torch.accelerator.memory_allocated(), stats()["allocated"])
        del tensor
        self.assertEqual(stats()["allocated"], before)
        self.assertEqual(torch.npu.get_allocator_backend(), "native")

    def test_computing(self):
        a = torch.arange(1000, device="npu")
        self.assertEqual((a + a).shape, (1000,))

    def test_blocks_by_handle(self):
        stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
        before = stats()["allocated"]
        handle = malloc_block(3 * MIB, stream, -1)
        self.assertTrue(handle)
        self.assertEqual(block_size(handle), 3 * MIB + 512)
        self.assertEqual(stats()["allocated"], before + block_size(handle))
        pointer = block_ptr(handle)
        blocks = [
            (block["address"], block["state"])
            for segment in torch.npu.memory_snapshot()
            for block in segment["blocks"]
        ]
        self.assertIn((pointer, "active_allocated"), blocks)
        free_block(handle)
        self.assertEqual(stats()["allocated"], before)
        # Memory of freed handles is used again.
        self.assertEqual(allocate(3 * MIB).data_ptr(), pointer)
        # As in the stock allocator: no such device gives null, and 0 bytes a block.
        self.assertIsNone(malloc_block(512, stream, 99))
        empty = malloc_block(0, stream, 0)
        self.assertEqual(block_size(empty), 512)
        free_block(empty)

    def test_blocks_of_the_current_device(self):
        with torch.npu.device(1):
            stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
            handle = malloc_block(3 * MIB, stream, -1)
        held = torch.npu.memory_stats(1)["allocated_bytes.all.current"]
        self.assertEqual(held, block_size(handle))
        free_block(handle)

    def test_handles_of_blocks_that_are_gone(self):
        stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
        handle = malloc_block(3 * MIB, stream, 0)
        self.assertIsNone(look_at_block(handle))
        free_block(handle)
        for use in (look_at_block, free_again):
            self.assertIn(b"invalid block handle", use(handle) or b"nothing")

    def test_profiler_reports(self):
        tree.tree_profile_memory(1)
        self.addCleanup(tree.tree_profile_memory, 0)
        reports()
        tensor = allocate(3 * MIB)
        pointer = tensor.data_ptr()
        stream = torch.npu.current_stream().npu_stream
        size = 3 * MIB + 512
        live = stats()
        expected = {
            "kind": MALLOC,
            "external": 0,
            "component": 0,
            "device": 0,
            "ptr": pointer,
            "size": size,
            "stream": stream,
        }
        self.assertEqual(reports(), [expected | live])
        del tensor
        gone = stats()
        self.assertEqual(gone["allocated"], live["allocated"] - size)
        expected["size"] = -size
        self.assertEqual(
            reports(),
            [expected | gone | {"kind": BLOCK_FREE}, expected | gone | {"kind": FREE}],
        )

    def test_profiler_reports_of_a_block_in_use_elsewhere(self):
        side = torch.npu.Stream()
        tensor = allocate(3 * MIB)
        with torch.npu.stream(side):
            tensor.add_(1)
        tensor.record_stream(side)
        tree.tree_profile_memory(1)
        self.addCleanup(tree.tree_profile_memory, 0)
        reports()
        del tensor
        self.assertEqual([report["kind"] for report in reports()], [FREE])
        torch.npu.synchronize()
        keep = allocate(512)  # Reaps the event.
        self.assertEqual([report["kind"] for report in reports()], [BLOCK_FREE, MALLOC])
        del keep

    def test_profiler_reports_of_blocks_by_handle(self):
        tree.tree_profile_memory(1)
        self.addCleanup(tree.tree_profile_memory, 0)
        reports()
        stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
        free_block(malloc_block(MIB, stream, 0))
        found = reports()
        self.assertEqual([report["kind"] for report in found], [MALLOC, BLOCK_FREE, FREE])
        self.assertEqual({report["external"] for report in found}, {1})

    def test_no_reports_while_off(self):
        reports()
        allocate(3 * MIB)
        self.assertEqual(reports(), [])

    def test_settings(self):
        drains = tree.tree_queue_drains()
        self.assertIsNone(set_settings(b"expandable_segments:True"))
        self.assertEqual(tree.tree_queue_drains(), drains + 1)
        self.assertEqual(tree.tree_expandable_segments(), 1)
        tensor = allocate(30 * MIB)
        segment = self.segment_of(tensor)
        self.assertTrue(segment["is_expandable"])
        del tensor
        torch.npu.empty_cache()
        self.assertIsNone(set_settings(b"expandable_segments:False"))
        self.assertFalse(self.segment_of(allocate(30 * MIB))["is_expandable"])
        # What torch_npu refuses changes nothing.
        self.assertIn(b"not a run-time setting", set_settings(b"page_size:1g"))
        self.assertEqual(tree.tree_page_size_1g(), 0)

    def test_pages_of_1g(self):
        tree.tree_set_page_size_1g(1)
        self.addCleanup(tree.tree_set_page_size_1g, 0)
        self.assertEqual(tree.tree_page_size_1g(), 1)

    def test_settings_wait_for_what_was_submitted(self):
        tree.tree_set_queue_status(1)
        self.addCleanup(tree.tree_set_queue_status, 0)
        error = set_settings(b"expandable_segments:True")
        self.assertIn(b"Failed to empty NPU task queue", error or b"nothing")
        self.assertEqual(tree.tree_expandable_segments(), 0)

    def segment_of(self, tensor):
        return next(
            segment
            for segment in torch.npu.memory_snapshot()
            if 0 <= tensor.data_ptr() - segment["address"] < segment["total_size"]
        )

    def test_running_out_asks_the_others_first(self):
        callbacks = tree.tree_free_callback_runs()
        releases = tree.tree_workspace_releases()
        _, total = torch.npu.mem_get_info()
        with self.assertRaises(torch.OutOfMemoryError):
            torch.empty(2 * total, dtype=torch.uint8, device="npu:1")
        self.assertGreater(tree.tree_free_callback_runs(), callbacks)
        self.assertGreater(tree.tree_workspace_releases(), releases)
        self.assertEqual(tree.tree_workspace_device(), 1)

    def test_lines_of_the_level_that_is_allowed(self):
        told = []
        self.addCleanup(tree.tree_set_log_level, 50)
        set_faults = getattr(ctypes.CDLL("libascendcl.so"), "cannSimSetFaults", None)
        if set_faults is None:
            self.skipTest("only the simulated driver fails when asked to")
        self.addCleanup(set_faults, b"")
        for level in (30, 20):
            tree.tree_set_log_level(level)
            before = tree.tree_info_lines()
            set_faults(b"aclrtMalloc:every=1;aclrtMallocPhysical:every=1")
            with self.assertRaises(torch.OutOfMemoryError):
                allocate(300 * MIB)
            told.append(tree.tree_info_lines() > before)
        self.assertEqual(told, [False, True])

    def test_damaged_memory_is_that_of_blocks(self):
        tensor = allocate(3 * MIB)
        nowhere = 1 << 30
        set_bad_memory(nowhere, tensor.data_ptr() + MIB, 4096)
        self.assertEqual(tree.tree_check_damage(0), 1)
        first = ctypes.c_void_p()
        self.assertEqual(tree.tree_bad_memory(ctypes.byref(first)), 1)
        self.assertEqual(first.value, tensor.data_ptr() + MIB)

    def test_sizes_in_words(self):
        words = {
            1024: b"1024 bytes",
            1025: b"1.00 KiB",
            3 * MIB: b"3.00 MiB",
            5 << 30: b"5.00 GiB",
        }
        self.assertEqual({size: format_size(size) for size in words}, words)

    def test_memory_usage_of_modules(self):
        with tempfile.TemporaryDirectory() as directory:
            ctypes.CDLL(None).setenv(b"DUMP_PATH", directory.encode(), 1)
            self.assertTrue(tree.tree_save_memory_usage(0) & 1)
            (file,) = pathlib.Path(directory).iterdir()
            self.assertRegex(file.name, r"^device_0_memUsageInfo_\d{14}\.csv$")
            self.assertEqual(
                file.read_text(),
                "moduleName,curMemSize(MB),memPeakSize(MB)\n"
                "RUNTIME,3.0000,4.0000\n"
                "HCCL,0.5000,1.0000\n",
            )
            # The runtime fails for another device.
            self.assertFalse(tree.tree_save_memory_usage(1) & 1)
            # There may be more than are asked for.
            file.unlink()
            tree.tree_set_module_count(200)
            self.addCleanup(tree.tree_set_module_count, 2)
            self.assertTrue(tree.tree_save_memory_usage(0) & 1)
            (file,) = pathlib.Path(directory).iterdir()
            self.assertEqual(len(file.read_text().splitlines()), 1 + 128)

    def test_z_sanitizer(self):
        # Last: it can't be turned off again.
        from torch_npu.utils import _npu_trace

        seen = []
        for name in ["NPUMemoryAllocation", "NPUMemoryDeallocation", "NPURecordStream", "NPUEraseStream"]:
            registry = getattr(_npu_trace, f"{name}Callbacks")
            registry.add_callback(
                lambda *values, name=name: seen.append((name, *values)), "fork mode"
            )
        tensor = allocate(512)
        self.assertEqual(seen, [])
        tree.tree_activate_sanitizer()
        tensor = allocate(3 * MIB)
        pointer = tensor.data_ptr()
        side = torch.npu.Stream()
        tensor.record_stream(side)
        seen_before_free = [entry for entry in seen if entry[1] == pointer]
        self.assertEqual(
            seen_before_free,
            [("NPUMemoryAllocation", pointer), ("NPURecordStream", pointer, side.npu_stream)],
        )
        torch_npu.erase_stream(tensor, side)
        self.assertEqual(seen[-1], ("NPUEraseStream", pointer, side.npu_stream))
        del tensor
        self.assertIn(("NPUMemoryDeallocation", pointer), seen)


if __name__ == "__main__":
    os.environ.setdefault("TORCH_NPU_WARNING_DISABLE", "1")
    unittest.main(verbosity=2)
