"""NPUALLOC_DEBUG: what programs do wrong, and what they are told."""

import ctypes
import gc
import os
import threading

import torch

from scenarios.common import MIB, allocate, caught, pick, stats
from scenarios.engine import change
from scenarios.virtual import calls

NAMES = ["allocated_bytes.all.current", "requested_bytes.all.current"]


def _runtime():
    torch.npu.init()
    return ctypes.CDLL("libascendcl.so")


def _write(address, count, value=7):
    """A copy that a program means for other memory."""
    torch.npu.synchronize()
    size = ctypes.c_size_t(count)
    assert _runtime().aclrtMemset(ctypes.c_void_p(address), size, value, size) == 0


def _check(plugin, device=0):
    """Bytes looked at and what was found, by the plug-in's own function."""
    library = ctypes.CDLL(plugin)
    library.npualloc_check_memory.restype = ctypes.c_char_p
    looked = ctypes.c_uint64()
    found = library.npualloc_check_memory(device, ctypes.byref(looked))
    return {"bytes": looked.value, "found": found and found.decode()}


def _message(error):
    return error and error["message"]


def overrun(count):
    """A block's end is overrun; the next allocation says so, the one after works."""
    tensor = torch.empty(1000, dtype=torch.float32, device="npu")
    address = tensor.data_ptr()
    _write(address + 4000, count)
    del tensor
    first = caught(allocate, 100)
    second = caught(allocate, 100)
    return {"address": address, "first": first, "second": second}


def overrun_under_long_names():
    """An overrun, found and told where the names of the callers' files are long."""
    names = {"overrun": overrun}
    lines = "def call(depth):\n    return call(depth - 1) if depth else overrun(4)\n"
    exec(compile(lines, "long" * 2000, "exec"), names)
    return _message(names["call"](20)["first"])


def overrun_before_a_pool_ends():
    """An overrun that a free has found, then the end of a pool; what the next allocations say."""
    pool = torch.npu.MemPool()
    with torch.npu.use_mem_pool(pool):
        inside = allocate(1000)
    tensor = torch.empty(1000, dtype=torch.float32, device="npu")
    _write(tensor.data_ptr() + 4000, 4)
    del tensor, inside
    del pool
    gc.collect()
    kept = len(torch.npu.memory_snapshot())
    return {"kept": kept, "first": _message(caught(allocate, 100)), "second": caught(allocate, 100)}


def overrun_by_operator():
    """An operator writes past the end of a view that claims more than there is."""
    tensor = torch.empty(256, dtype=torch.float32, device="npu")
    longer = torch.empty(0, dtype=torch.float32, device="npu")
    storage = torch._C._construct_storage_from_data_pointer(
        tensor.data_ptr(), tensor.device, 4 * 264)
    longer.set_(storage, 0, (264,), (1,))
    longer.fill_(3.0)
    torch.npu.synchronize()
    del longer, storage
    values = tensor.cpu().tolist()
    del tensor
    return {"filled": values == [3.0] * 256, "error": _message(caught(allocate, 100))}


def after_free(write):
    """A kernel's worth of work on memory that was freed."""
    tensor = allocate(3 * MIB)
    tensor.fill_(1)
    address = tensor.data_ptr()
    del tensor
    if write:
        _write(address + MIB, 8)
    again = allocate(3 * MIB)
    # Found while the memory was handed out; told by the next call that can fail.
    error = caught(torch.npu.empty_cache)
    read = again.cpu()[:4].tolist() if not write else None
    return {"same": again.data_ptr() == address, "error": _message(error), "read": read}


def written_after_a_free_elsewhere():
    """A write to memory that a thread without Python had and freed."""
    tensor = allocate(3 * MIB)
    address = tensor.data_ptr()
    del tensor
    failed = ctypes.PyDLL(os.environ["NPUALLOC_PROBE"]).probe_allocate_elsewhere(0, ctypes.c_size_t(3 * MIB))
    _write(address + MIB, 8)
    again = allocate(3 * MIB)
    error = caught(torch.npu.empty_cache)
    return {"failed": failed, "same": again.data_ptr() == address, "error": _message(error)}


def pending(device):
    """Work on the own stream, and on others where it was recorded, is waited for, whichever device is current: nothing is
    found."""
    side = torch.npu.Stream(device)
    # Longer than all calls together.
    _runtime().cannSimSetKernelTime(ctypes.c_uint64(1_000_000_000))
    for _ in range(5):
        with torch.npu.device(device):
            tensor = allocate(3 * MIB)
            with torch.npu.stream(side):
                tensor.fill_(1)
            tensor.record_stream(side)
            own = allocate(5 * MIB).fill_(1)
        del tensor, own
    torch.npu.empty_cache()
    return pick(stats(device), *NAMES)


def freed_by(name):
    """A thread of that name frees a block; how often the device is waited for then."""
    tensors = [allocate(3 * MIB)]
    torch.npu.synchronize()
    waits = []

    def free():
        torch.npu.set_device(0)
        # PR_SET_NAME
        assert ctypes.CDLL(None).prctl(15, name.encode()) == 0
        before = calls("aclrtSynchronizeDevice")
        tensors.clear()
        waits.append(calls("aclrtSynchronizeDevice") - before)

    thread = threading.Thread(target=free)
    thread.start()
    thread.join()
    return waits[0]


def checked(plugin):
    """The check on demand: live blocks, then damage, then none."""
    tensor = torch.empty(1000, dtype=torch.float32, device="npu")
    sound = _check(plugin)
    _write(tensor.data_ptr() + 4000, 4)
    damaged, after = _check(plugin), _check(plugin)
    return {"sound": sound, "damaged": damaged, "after": after, "none": _check(plugin, 99)}


def asleep(plugin, freed):
    """A tensor sleeps and wakes, or is freed asleep: no fault of the program's, and nothing is found."""
    library = ctypes.CDLL(plugin)
    tensor = torch.empty(1000, dtype=torch.uint8, device="npu")
    pool = torch.npu.MemPool()
    with torch.npu.use_mem_pool(pool):
        inside = torch.empty(1000, dtype=torch.uint8, device="npu")
    result = {"awake": _check(plugin), "slept": change(library, "npualloc_sleep")}
    result["asleep"] = _check(plugin)
    if freed:
        del tensor, inside
        torch.npu.synchronize()
    result["woken"] = change(library, "npualloc_wake_up")
    result["after"] = _check(plugin)
    tensor = inside = None
    result["error"] = caught(torch.npu.empty_cache)
    again = torch.empty(1000, dtype=torch.uint8, device="npu")
    result["watched"] = _check(plugin)
    # The pool alone.
    with torch.npu.use_mem_pool(pool):
        inside = torch.empty(1000, dtype=torch.uint8, device="npu")
    result["pool slept"] = change(library, "npualloc_sleep", pool.id, 0)
    result["pool asleep"] = _check(plugin)
    if freed:
        inside = None
    result["pool woken"] = change(library, "npualloc_wake_up", pool.id, 0)
    inside = None
    result["end"] = _check(plugin)
    return {**result, "size": again.nbytes}


def pointers():
    """Pointers that are not, or no longer, a block's."""
    address = torch.npu.caching_allocator_alloc(3 * MIB)
    kept = torch.npu.caching_allocator_alloc(700)
    delete = torch.npu.caching_allocator_delete
    delete(address)
    return {
        "twice": caught(delete, address),
        "inside": caught(delete, kept + 512),
        "foreign": caught(delete, 0xDEAD0000),
        "stats": pick(stats(), *NAMES),
    }


def training():
    """Some steps of training, with all that comes with them; what is found."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(),
                                torch.nn.Linear(128, 8)).npu()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    side = torch.npu.Stream()
    for step in range(6):
        batch = torch.ones(32, 64).npu()
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.npu.stream(side):
            batch.mul_(2)
        batch.record_stream(side)
        if step % 3 == 2:
            torch.npu.empty_cache()
    threads = [threading.Thread(target=lambda: [allocate(3 * MIB) for _ in range(20)])
               for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    graph = torch.npu.NPUGraph()
    static = torch.ones(1000, device="npu")
    torch.npu.synchronize()
    with torch.npu.graph(graph):
        result = (static + 1) * 2
    for _ in range(3):
        graph.replay()
    torch.npu.synchronize()
    torch.npu.empty_cache()
    return {"shape": list(result.shape)}


def words():
    """Whether an allocation works under the environment's words."""
    return {"error": caught(allocate, 100), "debug": os.environ.get("NPUALLOC_DEBUG")}


def forked():
    """A forked process drops tensors that its parent uses. What the parent has in them, and the child's status."""
    data = [torch.ones(count, device="npu") for count in (1000, MIB)]
    torch.npu.synchronize()
    child = os.fork()
    if child == 0:
        data.clear()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    found = [sorted(set(one.cpu().tolist())) for one in data]
    data.clear()
    # What was found damaged would be raised.
    return {"data": found, "status": status, "then": _message(caught(allocate, MIB))}
