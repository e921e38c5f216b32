// The C functions of libnpualloc_torch_npu.so; all may be called from any thread. Everything else
// in the library is hidden.
//
// Loading the library registers npualloc with torch_npu, unless NPUALLOC_DISABLE is set to
// something other than 0.
#pragma once

#include <stdint.h>

#define NPUALLOC_EXPORT __attribute__((visibility("default")))

extern "C" {

// Why loading did not register the allocator; null when it did, or when it was not asked to.
NPUALLOC_EXPORT const char* npualloc_load_error();

// 1 when npualloc is torch_npu's current allocator.
NPUALLOC_EXPORT int npualloc_is_registered();

// Verifies the allocator's invariants: null, or the text naming the first one broken (valid until
// the thread's next call).
NPUALLOC_EXPORT const char* npualloc_check_consistency();

// How requests were served that no free block fitted: a line "name count" for each rung of the
// ladder and each source of pages (docs/design.md), for a device that is in use; null otherwise.
// Valid until the thread's next call.
NPUALLOC_EXPORT const char* npualloc_ladder(int device);

// Puts a wrapper around torch_npu's current allocator, whichever that is, that passes everything on
// and adds up the host time of allocations and frees. Memory allocated before stays valid and is
// not timed. Returns 0, or 1 when a wrapper is in place already.
NPUALLOC_EXPORT int npualloc_timing_wrap();

// Calls timed since the wrapper was made (each allocation and each free is one) and their time in
// nanoseconds, the reading of the clock included. Null pointers are skipped. Zeros without a
// wrapper.
NPUALLOC_EXPORT void npualloc_timing_read(uint64_t* calls, uint64_t* ns);

}  // extern "C"
