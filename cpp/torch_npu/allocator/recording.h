// NPUALLOC_TRACE: what the program asks of the allocator, written to a file (src/record).
//
// While a recording is under way, requests take the long way (npu_allocator.h), which asks `on()`.
// The short way knows nothing of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "../pch.h"
#include "npualloc/allocator.h"

namespace npualloc::torch_npu_plugin {

class NpuAllocator;

namespace recording {

// Never destroyed: another thread may be about to use it.
extern std::atomic<const ffi::Recorder*> recorder;

inline bool on() { return recorder.load(std::memory_order_relaxed) != nullptr; }

// What NPUALLOC_TRACE asks for, once. A failure is told on the standard error.
void follow_environment(NpuAllocator& allocator);

// Whether allocations are recorded with their Python stacks, by a recording started later. At
// first, what NPUALLOC_TRACE_STACKS says.
void take_stacks(bool wanted);

// A recording's number is no other's. This one stands for whichever is under way.
inline constexpr std::uint64_t kAny = 0;

// False where that recording is not under way.
bool mark(const std::string& label, std::uint64_t number);

// Each throws std::runtime_error with a text for people. The number of the new recording.
std::uint64_t start(NpuAllocator& allocator, const std::string& path);
// The number of bytes written; nothing where that recording is not under way.
std::optional<std::uint64_t> stop(NpuAllocator& allocator, std::uint64_t number);

// Ends a recording that this process began. A forked child has its parent's recording, whose file
// is not its to end.
void end_of_process();

// No effect without a recording. `addr` is 0 where memory ran out.
void allocated(const ffi::Allocator& core, int device, std::uintptr_t addr, std::size_t bytes,
               aclrtStream stream, const ffi::MempoolId& pool);
void freed(std::uintptr_t addr);
void used(std::uintptr_t addr, aclrtStream stream);
void emptied(int device);
void pool_released(int device, const ffi::MempoolId& pool);
void stream_waited(aclrtStream stream);
// The current device.
void device_waited();
void event_recorded(aclrtEvent event, aclrtStream stream);
void event_waited(aclrtEvent event);

// While one exists, this thread's waits are the allocator's own and are not recorded.
class OwnWait {
 public:
  OwnWait() { ++depth; }
  ~OwnWait() { --depth; }
  OwnWait(const OwnWait&) = delete;
  OwnWait& operator=(const OwnWait&) = delete;
  static bool underway() { return depth > 0; }

 private:
  // `constinit`: no other file needs a function that initialises it.
  static constinit thread_local int depth;
};

}  // namespace recording
}  // namespace npualloc::torch_npu_plugin
