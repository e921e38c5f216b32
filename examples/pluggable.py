"""npualloc in stock torch_npu through `NPUPluggableAllocator`, with nothing but torch_npu's own entry points.

    python pluggable.py /path/to/libnpualloc_pluggable.so
"""

import ctypes
import sys

import torch
import torch_npu


def npualloc(path):
    """An allocator for `torch_npu.npu.memory.change_current_allocator`, with all of npualloc's functions."""
    allocator = torch_npu.npu.memory.NPUPluggableAllocator(path, "npualloc_malloc", "npualloc_free")
    library = ctypes.CDLL(path)

    def address(name):
        return ctypes.cast(getattr(library, f"npualloc_{name}"), ctypes.c_void_p).value

    functions = allocator.allocator()
    functions.set_init_fn(address("init"))
    functions.set_reset_fn(address("reset"))
    functions.set_memory_fraction_fn(address("memory_fraction"))
    functions.set_base_alloc_fn(address("base_alloc"))
    functions.set_record_stream_fn(address("record_stream"))
    functions.set_erase_stream_fn(address("erase_stream"))
    functions.set_get_device_stats_fn(address("get_device_stats"))
    functions.set_reset_peak_status_fn(address("reset_peak_status"))
    functions.set_begin_allocate_to_pool(address("begin_allocate_to_pool"))
    functions.set_end_allocate_to_pool_fn(address("end_allocate_to_pool"))
    functions.set_release_pool(address("release_pool"))
    return allocator


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: pluggable.py PATH/libnpualloc_pluggable.so")
    # Before the first use of an NPU.
    torch_npu.npu.memory.change_current_allocator(npualloc(sys.argv[1]))

    layer = torch.nn.Linear(1024, 1024).npu()
    for _ in range(3):
        layer(torch.ones(64, 1024, device="npu")).sum().backward()
    torch.npu.synchronize()
    print(f"allocated: {torch.npu.memory_allocated() >> 10} KiB")
    print(f"at most:   {torch.npu.max_memory_allocated() >> 10} KiB")
    print(f"reserved:  {torch.npu.memory_reserved() >> 10} KiB")


if __name__ == "__main__":
    main()
