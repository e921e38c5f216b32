"""npualloc through NPUPluggableAllocator. Each scenario has a process of its own: it replaces the allocator."""

import ctypes
import importlib.util
import io
import pathlib
import sys
from contextlib import redirect_stdout

import torch
import torch_npu

from scenarios.common import MIB, allocate, caught, pick, stats
from scenarios.streams import work

ALL = [
    "allocated_bytes.all.current",
    "allocated_bytes.all.peak",
    "reserved_bytes.all.current",
    "allocation.all.allocated",
    "allocation.all.freed",
]


def example():
    """The module examples/pluggable.py."""
    path = pathlib.Path(__file__).parents[3] / "examples" / "pluggable.py"
    spec = importlib.util.spec_from_file_location("pluggable_example", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def use(library):
    """Puts npualloc with all its functions in place."""
    torch_npu.npu.memory.change_current_allocator(example().npualloc(library))
    torch.npu.init()


def consistency(library):
    check = ctypes.CDLL(library).npualloc_check_consistency
    check.restype = ctypes.c_char_p
    broken = check()
    return broken and broken.decode()


def run_example(library):
    """The example as it stands."""
    module = example()
    sys.argv = ["pluggable.py", library]
    output = io.StringIO()
    with redirect_stdout(output):
        module.main()
    return output.getvalue().splitlines()


def loading(library):
    """Loading it alone changes nothing."""
    ctypes.CDLL(library)
    before = torch.npu.get_allocator_backend()
    allocate(3 * MIB)
    return {"backend": before, "accelerator": torch.accelerator.memory_reserved()}


def beside_the_plugin(library, plugin):
    """The plug-in serves torch_npu already."""
    torch.ops.load_library(plugin)
    return caught(use, library)


def two_functions(library):
    """Only malloc and free are given: the first allocation sets the rest up."""
    allocator = torch_npu.npu.memory.NPUPluggableAllocator(
        library, "npualloc_malloc", "npualloc_free"
    )
    torch_npu.npu.memory.change_current_allocator(allocator)
    first = allocate(3 * MIB)
    pointer = first.data_ptr()
    del first
    again = allocate(3 * MIB).data_ptr()
    other = allocate(3 * MIB, "npu:1")
    return {"again": again == pointer, "other": str(other.device), "consistency": consistency(library)}


def statistics(library):
    use(library)
    keep = [allocate(3 * MIB), allocate(5 * MIB)]
    both = pick(stats(), *ALL)
    del keep[1]
    one = pick(stats(), *ALL)
    torch.npu.reset_peak_memory_stats()
    reset = pick(stats(), *ALL)
    del keep[0]
    torch.npu.empty_cache()
    other = allocate(7 * MIB, "npu:1")
    return {
        "backend": torch.npu.get_allocator_backend(),
        "devices": [stats(device)["requested_bytes.all.current"] for device in (0, other.device)],
        "both": both,
        "one": one,
        "reset": reset,
        "empty": allocate(0).data_ptr(),
        "consistency": consistency(library),
    }


def cache(library, size):
    """What torch_npu's allocator gives back through the reset function."""
    use(library)
    allocate(size)
    before = torch.npu.memory_reserved()
    torch.npu.empty_cache()
    return {"before": before, "after": torch.npu.memory_reserved()}


def streams(library):
    """Memory used on another stream is not given out again too early."""
    use(library)
    side = torch.npu.Stream()
    tensor = allocate(3 * MIB)
    pointer = tensor.data_ptr()
    with torch.npu.stream(side):
        for _ in range(100):
            tensor.add_(1)
    tensor.record_stream(side)
    del tensor
    pending = pick(stats(), "active_bytes.all.current", "allocated_bytes.all.current")
    early = allocate(3 * MIB)
    torch.npu.synchronize()
    allocate(512)
    late = allocate(3 * MIB)
    return {
        "pending": pending,
        "early": early.data_ptr() == pointer,
        "late": late.data_ptr() == pointer,
        "consistency": consistency(library),
    }


def stream_of_a_request(library):
    """Memory that was freed on one stream serves that stream alone."""
    use(library)
    pointer = allocate(3 * MIB).data_ptr()
    with torch.npu.stream(torch.npu.Stream()):
        other = allocate(3 * MIB)
    return {"other": other.data_ptr() == pointer, "same": allocate(3 * MIB).data_ptr() == pointer}


def erased(library):
    """A recorded use that is taken back; the kernel takes longer than all calls."""
    use(library)
    side = torch.npu.Stream()
    tensor = allocate(3 * MIB)
    pointer = tensor.data_ptr()
    with torch.npu.stream(side):
        work(tensor)
    tensor.record_stream(side)
    torch_npu.erase_stream(tensor, side)
    del tensor
    return {"reused": allocate(3 * MIB).data_ptr() == pointer}


def foreign(library):
    """A tensor whose memory begins inside of a block and has another deleter."""
    use(library)
    tensor = allocate(3 * MIB)
    view = torch.from_dlpack(torch.utils.dlpack.to_dlpack(tensor[1024:]))
    error = caught(view.record_stream, torch.npu.Stream())
    return {"offset": view.data_ptr() - tensor.data_ptr(), "error": error,
            "consistency": consistency(library)}


def pools(library):
    """Scopes that send requests to a private pool."""
    use(library)
    pool = (0, 7)
    device = torch.npu.current_device()
    outside = allocate(3 * MIB)
    torch_npu._C._npu_beginAllocateToPool(device, pool)
    inside = allocate(3 * MIB)
    again = caught(torch_npu._C._npu_beginAllocateToPool, device, pool)
    torch_npu._C._npu_endAllocateToPool(device, pool)
    reserved = torch.npu.memory_reserved()
    # The pool's free memory does not serve others, and theirs not the pool.
    distance = abs(inside.data_ptr() - outside.data_ptr())
    del inside
    torch.npu.empty_cache()
    kept = torch.npu.memory_reserved()
    torch_npu._C._npu_releasePool(device, pool)
    torch.npu.empty_cache()
    return {
        "apart": distance >= 3 * MIB,
        "again": again,
        "end": caught(torch_npu._C._npu_endAllocateToPool, device, pool),
        "reserved": reserved,
        "kept": kept,
        "released": torch.npu.memory_reserved(),
        "consistency": consistency(library),
    }


def pool_of_a_stream(library):
    """A scope for the requests of one stream."""
    use(library)
    pool = (0, 7)
    device = torch.npu.current_device()
    with torch.npu.stream(torch.npu.Stream()):
        torch_npu._C._npu_beginAllocateCurrentStreamToPool(device, pool)
        inside = allocate(3 * MIB)
    outside = allocate(3 * MIB)
    both = torch.npu.memory_reserved()
    del inside, outside
    # What the pool has stays, as it is in use.
    torch.npu.empty_cache()
    kept = torch.npu.memory_reserved()
    torch_npu._C._npu_endAllocateToPool(device, pool)
    torch_npu._C._npu_releasePool(device, pool)
    return {"both": both, "kept": kept, "consistency": consistency(library)}


def broken_device(library):
    """The cache is emptied while the device fails: with an error, or without one where nobody wants it."""
    use(library)
    allocate(30 * MIB)
    torch.npu.synchronize()
    break_device = ctypes.CDLL("libascendcl.so").cannSimBreakDevice
    break_device(0, 507899)
    error = caught(torch.npu.empty_cache)
    ctypes.CDLL(library).npualloc_reset(ctypes.c_bool(False))
    break_device(0, 0)
    torch.npu.empty_cache()
    return {"error": error, "then": torch.npu.memory_reserved()}


def limits(library):
    """The memory fraction, running out, and settings."""
    use(library)
    _, total = torch.npu.mem_get_info()
    torch.npu.set_per_process_memory_fraction(0.25)
    error = caught(allocate, total // 2)
    fits = allocate(total // 8).data_ptr() != 0
    return {"error": error, "fits": fits, "consistency": consistency(library)}


def settings(library):
    """Settings of run time reach it."""
    use(library)
    torch.npu.memory._set_allocator_settings("expandable_segments:True")
    allocate(3 * MIB)
    return torch.npu.memory_reserved()


def base(library):
    """Where the segment of a block starts."""
    use(library)
    keep = [allocate(3 * MIB), allocate(3 * MIB)]
    function = ctypes.CDLL(library).npualloc_base_alloc
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
    size = ctypes.c_size_t()
    start = function(keep[1].data_ptr(), ctypes.byref(size))
    return {"start": start == keep[0].data_ptr(), "size": size.value}


def too_late(library):
    """Torch_npu refuses once an NPU is in use."""
    allocate(3 * MIB)
    allocator = example().npualloc(library)
    error = caught(torch_npu.npu.memory.change_current_allocator, allocator)
    return {"error": error, "address": allocate(3 * MIB).data_ptr() != 0}
