"""Calls on the runtime past the allocator that a device would punish."""

import ctypes

import torch

from scenarios.common import MIB, allocate


def _runtime():
    torch.npu.init()
    torch.npu.synchronize()
    return ctypes.CDLL("libascendcl.so")


def bad_free():
    """Frees an address the runtime did not give out."""
    runtime = _runtime()
    block = allocate(1000)
    torch.npu.synchronize()
    return runtime.aclrtFree(ctypes.c_void_p(block.untyped_storage().data_ptr() + 512))


def free_under_work():
    """Frees a tensor's memory while a kernel writes it."""
    runtime = _runtime()
    tensor = allocate(30 * MIB)
    torch.npu.synchronize()
    tensor.fill_(1)
    torch.npu.current_stream().query()
    return runtime.aclrtFree(ctypes.c_void_p(tensor.untyped_storage().data_ptr()))


def leak():
    """Allocates behind the allocator's back and forgets."""
    pointer = ctypes.c_void_p()
    return _runtime().aclrtMalloc(ctypes.byref(pointer), ctypes.c_size_t(4 * MIB), 0)
