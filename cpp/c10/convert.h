// Statuses and statistics of the core as torch knows them.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <string>

#include "npualloc/allocator.h"

namespace npualloc::c10_backend {

// From here on a request is refused outright: 2^60 bytes.
inline constexpr std::size_t kOneExaByte = std::size_t{1} << 60;

inline constexpr const char* kTooLarge =
    "NPU out of memory. Tried to allocate more than 1EB memory.";

// Throws c10::OutOfMemoryError for a request of kOneExaByte or more.
[[noreturn]] void throw_too_large();

// Throws the c10 exception for `status`, with the text of the calling thread's last failure.
[[noreturn]] void throw_c10(Status status);

// The same with the text given.
[[noreturn]] void throw_c10(Status status, const std::string& message);

inline void check(Status status) {
  if (status != Status::Ok) [[unlikely]] {
    throw_c10(status);
  }
}

// A device's statistics, reserved bytes of private pools included where torch's struct has them;
// zeros where `outcome` is a failure.
c10::CachingDeviceAllocator::DeviceStats read_stats(const ffi::Allocator& core, int device,
                                                    Outcome& outcome);

}  // namespace npualloc::c10_backend
