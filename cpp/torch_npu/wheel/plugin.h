/// \file
/// The C functions of libnpualloc_torch_npu.so; all may be called from any thread. Everything else
/// in the library is hidden.
///
/// Loading the library registers npualloc with torch_npu, unless NPUALLOC_DISABLE is set to
/// something other than 0.
#pragma once

#include <stdint.h>

/// Marks what the library exports.
#define NPUALLOC_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/// Why loading did not register the allocator; null when it did, or when it was not asked to.
NPUALLOC_EXPORT const char* npualloc_load_error(void);

/// 1 when npualloc is torch_npu's current allocator.
NPUALLOC_EXPORT int npualloc_is_registered(void);

/// Verifies the allocator's invariants: null, or the text naming the first one broken (valid until
/// the thread's next call).
NPUALLOC_EXPORT const char* npualloc_check_consistency(void);

/// With NPUALLOC_DEBUG: waits for the device and looks at every red zone and at all poisoned memory
/// (docs/debugging.md). Null, or what was found now or before and not raised yet (valid until the
/// thread's next call). `bytes` (may be null): how many were looked at, 0 where contents are not
/// checked.
NPUALLOC_EXPORT const char* npualloc_check_memory(int device, uint64_t* bytes);

/// How requests were served that no free block fitted: a line "name count" for each rung of the
/// ladder and each source of pages (docs/design.md), for a device that is in use; null otherwise.
/// Valid until the thread's next call.
NPUALLOC_EXPORT const char* npualloc_ladder(int device);

/// Sleep: waits for the device and returns the physical memory of a private pool (its id's two
/// numbers), or of everything, to the driver. Addresses stay, contents are lost, and what sleeps
/// serves no request. Memory in fixed segments that is in use stays. Null, or why it failed (valid
/// until the thread's next call); `bytes` (may be null): how much.
NPUALLOC_EXPORT const char* npualloc_sleep(int device, uint64_t first, uint64_t second, int all,
                                           uint64_t* bytes);
/// Gives memory to what sleeps; otherwise as `npualloc_sleep`.
NPUALLOC_EXPORT const char* npualloc_wake_up(int device, uint64_t first, uint64_t second, int all,
                                             uint64_t* bytes);

/// Recording: what the program asks of the allocator from now on, and first what is alive, goes to
/// a file (`npualloc replay`, `report` …). `%p` in the path stands for the process, `%r` for RANK.
/// The environment variable NPUALLOC_TRACE starts one with the first use of an NPU; the end of the
/// process ends it. While it is under way, requests take a slower way. Each gives null, or why it
/// failed (valid until the thread's next call).
NPUALLOC_EXPORT const char* npualloc_trace_start(const char* path);
/// As `npualloc_trace_start`. `recording` (may be null): a number that no other recording has.
NPUALLOC_EXPORT const char* npualloc_trace_begin(const char* path, uint64_t* recording);
/// Whether recordings started from now on have the Python stacks of allocations (1) or not (0). At
/// first, what NPUALLOC_TRACE_STACKS says. Taking them costs some microseconds an allocation.
NPUALLOC_EXPORT void npualloc_trace_stacks(int wanted);
/// A step or a phase begins.
NPUALLOC_EXPORT const char* npualloc_trace_mark(const char* label);
/// The same where another thread may end the recording (0: any) at any time: nothing, and no
/// failure, where it is not under way. `noted` (may be null): 1 where it is, else 0.
NPUALLOC_EXPORT const char* npualloc_trace_note(uint64_t recording, const char* label, int* noted);
/// The program has waited for a stream (null: the current device) by the runtime's own function.
/// Waits by torch_npu are recorded anyway.
NPUALLOC_EXPORT const char* npualloc_trace_synchronized(void* stream);
/// An event of the runtime was recorded on a stream (of torch, by its device and id). Not seen
/// otherwise; the Python package tells those of torch.npu.Event.
NPUALLOC_EXPORT const char* npualloc_trace_event_recorded(void* event, int device, int64_t stream);
/// Such an event has been waited for.
NPUALLOC_EXPORT const char* npualloc_trace_event_waited(void* event);
/// Writes what is left. `bytes` (may be null): what was written in all.
NPUALLOC_EXPORT const char* npualloc_trace_stop(uint64_t* bytes);
/// The same for one recording (0: any): nothing, and no failure, where it is not under way. `ended`
/// (may be null): 1 where it was, else 0.
NPUALLOC_EXPORT const char* npualloc_trace_end(uint64_t recording, uint64_t* bytes, int* ended);
/// What the library does when the process ends, for where the C library's exit functions are not
/// called (`_exit`): a recording that this process began is over.
NPUALLOC_EXPORT void npualloc_trace_end_of_process(void);
/// 1 while one is under way.
NPUALLOC_EXPORT int npualloc_trace_is_on(void);

/// Puts a wrapper around torch_npu's current allocator, whichever that is, that passes everything
/// on and adds up the host time of allocations and frees. Memory allocated before stays valid and
/// is not timed. Returns 0, or 1 when a wrapper is in place already.
NPUALLOC_EXPORT int npualloc_timing_wrap(void);

/// Calls timed since the wrapper was made (each allocation and each free is one) and their time in
/// nanoseconds, the reading of the clock included. Null pointers are skipped. Zeros without a
/// wrapper.
NPUALLOC_EXPORT void npualloc_timing_read(uint64_t* calls, uint64_t* ns);

#ifdef __cplusplus
}  // extern "C"
#endif
