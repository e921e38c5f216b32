"""Memory used by more than one stream.

Work is made to take long on the device's clock, so that it is certainly
pending when the host comes back to it; the tests set CANN_SIM_KERNEL_NS.
"""

import ctypes

import torch
import torch_npu

from scenarios.common import MIB, allocate, both_stats, caught, pick, stats

NAMES = [
    "allocated_bytes.all.current",
    "active_bytes.all.current",
    "allocation.all.current",
    "active.all.current",
    "reserved_bytes.all.current",
]


def work(tensor):
    """Starts a kernel on the current stream that uses the tensor."""
    tensor.fill_(1)
    torch.npu.current_stream().query()


def pending_use():
    """A block freed while another stream uses it: held until that is done."""
    side = torch.npu.Stream()
    tensor = allocate(30 * MIB)
    address = tensor.data_ptr()
    with torch.npu.stream(side):
        work(tensor)
    tensor.record_stream(side)
    done = torch.npu.Event()
    done.record(side)
    before = pick(stats(), *NAMES)
    pending = not done.query()
    del tensor
    freed = pick(stats(), *NAMES)
    other = allocate(30 * MIB)
    while_pending = {"reused": other.data_ptr() == address, **pick(stats(), *NAMES)}
    still = not done.query()
    side.synchronize()
    third = allocate(30 * MIB)
    after = {"reused": third.data_ptr() == address, **pick(stats(), *NAMES)}
    return {
        "pending": [pending, still],
        "before": before,
        "freed": freed,
        "while_pending": while_pending,
        "after": after,
    }


def without_record_stream():
    """The same without record_stream: the block is free at once."""
    side = torch.npu.Stream()
    tensor = allocate(30 * MIB)
    address = tensor.data_ptr()
    with torch.npu.stream(side):
        work(tensor)
    del tensor
    other = allocate(30 * MIB)
    return {"reused": other.data_ptr() == address, **pick(stats(), *NAMES)}


def own_stream():
    """Recording the stream a block was made on is a use like any other."""
    tensor = allocate(30 * MIB)
    address = tensor.data_ptr()
    work(tensor)
    tensor.record_stream(torch.npu.current_stream())
    del tensor
    other = allocate(30 * MIB)
    return {"reused": other.data_ptr() == address, **both_stats()}


def several_streams():
    """A use on each of three streams; the block waits for the slowest."""
    sides = [torch.npu.Stream() for _ in range(3)]
    tensor = allocate(30 * MIB)
    address = tensor.data_ptr()
    for number, side in enumerate(sides):
        with torch.npu.stream(side):
            for _ in range(1 + 3 * number):
                work(tensor)
        tensor.record_stream(side)
    del tensor
    reused = []
    for side in sides:
        side.synchronize()
        probe = allocate(30 * MIB)
        reused.append(probe.data_ptr() == address)
        # Kept, or the probe's own memory would serve the next one.
        sides[sides.index(side)] = probe
    return {"reused": reused, **pick(stats(), *NAMES)}


def pools_of_streams():
    """A stream's free memory does not serve another stream."""
    side = torch.npu.Stream()
    first = allocate(30 * MIB)
    address = first.data_ptr()
    del first
    with torch.npu.stream(side):
        second = allocate(30 * MIB)
    third = allocate(30 * MIB)
    return {
        "side": second.data_ptr() == address,
        "own": third.data_ptr() == address,
        **both_stats(),
    }


def empty_cache_waits():
    """empty_cache gives back blocks whose use was pending, after waiting for it."""
    side = torch.npu.Stream()
    tensor = allocate(30 * MIB)
    with torch.npu.stream(side):
        work(tensor)
    tensor.record_stream(side)
    del tensor
    before = pick(stats(), *NAMES)
    torch.npu.empty_cache()
    return {"before": before, "after": both_stats()}


def erased():
    """erase_stream takes a recorded use back."""
    side = torch.npu.Stream()
    tensor = allocate(30 * MIB)
    address = tensor.data_ptr()
    with torch.npu.stream(side):
        work(tensor)
    tensor.record_stream(side)
    torch_npu.erase_stream(tensor, side)
    del tensor
    other = allocate(30 * MIB)
    return {"reused": other.data_ptr() == address, **pick(stats(), *NAMES)}


def _given(kind, runtime):
    """A stream that torch_npu is given; torch_npu's own stream that it is another name of, if it is one."""
    if kind == "foreign":
        handle = ctypes.c_void_p()
        assert runtime.aclrtCreateStream(ctypes.byref(handle)) == 0
        return torch.npu.ExternalStream(handle.value), None
    own = torch.npu.default_stream() if kind == "default" else torch.npu.Stream()
    return torch.npu.ExternalStream(own.npu_stream), own


def external(kind):
    """Memory of a stream that the program gave torch_npu, for another stream while the first works; and back."""
    runtime = ctypes.CDLL("libascendcl.so")
    allocate(1)
    given, own = _given(kind, runtime)
    handle = ctypes.c_void_p(given.npu_stream)
    other = torch.npu.Stream() if kind == "default" else torch.npu.default_stream()
    if own is not None:
        with torch.npu.stream(own):
            allocate(30 * MIB)
    errors = []

    def fill(stream, size):
        with torch.npu.stream(stream):
            tensor = allocate(size)
            if stream is given:
                place = ctypes.c_void_p(tensor.data_ptr())
                assert runtime.aclrtMemsetAsync(place, size, 0, size, handle) == 0
            else:
                work(tensor)

    for size in (600 * MIB, 650 * MIB):
        for stream in (given, other, own or other):
            errors.append(caught(fill, stream, size))
    torch.npu.synchronize()
    if own is None:
        torch.npu.empty_cache()
        assert runtime.aclrtDestroyStream(handle) == 0
    return {"errors": errors, **pick(stats(), *NAMES[:4])}
