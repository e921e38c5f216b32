/// \file
/// The functions of libnpualloc_pluggable.so, by the names under which Python looks them up, with
/// the signatures of the NPUPluggableAllocator's setters in torch_npu. Loading the library
/// registers nothing and calls nothing.
///
/// All may be called from any thread. Sizes are bytes. Errors are thrown as the stock allocator
/// throws them: c10::OutOfMemoryError when memory runs out, c10::Error otherwise; the callers are
/// C++. A failed call changes nothing.
///
/// npualloc_malloc and npualloc_free are enough; every other function is optional. The first call
/// reads PYTORCH_NPU_ALLOC_CONF or PYTORCH_ALLOC_CONF, and PYTORCH_CUDA_ALLOC_CONF or
/// PYTORCH_HIP_ALLOC_CONF before.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <functional>

#include "../torch_npu/pch.h"

/// Marks what the library exports.
#define NPUALLOC_PLUGGABLE_EXPORT __attribute__((visibility("default")))

extern "C" {

/// Memory on `device`, usable at once on `stream`. Zero bytes give null.
NPUALLOC_PLUGGABLE_EXPORT void* npualloc_malloc(size_t size, int device, aclrtStream stream);
/// Null is ignored. `size`, `device` and `stream` are those of the allocation; npualloc knows them.
NPUALLOC_PLUGGABLE_EXPORT void npualloc_free(void* ptr, size_t size, int device,
                                             aclrtStream stream);

/// set_init_fn. Makes room for devices 0 … device_count − 1. Without it the first allocation does
/// so for all.
NPUALLOC_PLUGGABLE_EXPORT void npualloc_init(int device_count);
/// set_reset_fn: torch.npu.empty_cache(). Failures are warnings unless `check_error`.
NPUALLOC_PLUGGABLE_EXPORT void npualloc_reset(bool check_error);
/// set_memory_fraction_fn: torch.npu.set_per_process_memory_fraction(fraction, device), within [0,
/// 1].
NPUALLOC_PLUGGABLE_EXPORT void npualloc_memory_fraction(double fraction, int device);
/// set_base_alloc_fn: the start of the segment that holds the live block at `ptr`, and the
/// segment's size.
NPUALLOC_PLUGGABLE_EXPORT void* npualloc_base_alloc(void* ptr, size_t* size);

/// set_record_stream_fn: after the block is freed its memory is not given out again before what was
/// submitted to `stream` until then has completed. Null and memory of others are ignored.
NPUALLOC_PLUGGABLE_EXPORT void npualloc_record_stream(void* ptr, c10_npu::NPUStream stream);
/// set_erase_stream_fn: takes that back.
NPUALLOC_PLUGGABLE_EXPORT void npualloc_erase_stream(void* ptr, c10_npu::NPUStream stream);

/// set_get_device_stats_fn: torch.npu.memory_stats().
NPUALLOC_PLUGGABLE_EXPORT c10::CachingDeviceAllocator::DeviceStats npualloc_get_device_stats(
    c10::DeviceIndex device);
/// set_reset_peak_status_fn: torch.npu.reset_peak_memory_stats().
NPUALLOC_PLUGGABLE_EXPORT void npualloc_reset_peak_status(c10::DeviceIndex device);

/// set_begin_allocate_to_pool: from now on requests of streams that `filter` takes come from that
/// private pool, which is made if need be and then has one more user.
NPUALLOC_PLUGGABLE_EXPORT void npualloc_begin_allocate_to_pool(
    int device, c10_npu::MempoolId_t mempool_id, std::function<bool(aclrtStream)> filter);
/// set_end_allocate_to_pool_fn: ends that. The pool keeps its user.
NPUALLOC_PLUGGABLE_EXPORT void npualloc_end_allocate_to_pool(int device,
                                                             c10_npu::MempoolId_t mempool_id);
/// set_release_pool: the pool has one user less; without users its memory can be returned.
NPUALLOC_PLUGGABLE_EXPORT void npualloc_release_pool(int device, c10_npu::MempoolId_t mempool_id);

/// Not for torch_npu. Verifies the allocator's invariants: null, or the text naming the first one
/// broken (valid until the thread's next call).
NPUALLOC_PLUGGABLE_EXPORT const char* npualloc_check_consistency();

}  // extern "C"
