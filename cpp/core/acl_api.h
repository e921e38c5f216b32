// The AscendCL functions the allocator calls, looked up at run time so that nothing hard-links what
// an older runtime lacks. Declared here because CANN's headers may be absent where this is
// compiled; the values and layouts are those of acl/acl_rt.h of CANN 8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace npualloc::acl {

using Code = std::int32_t;
using Event = void*;
using Stream = void*;
using Context = void*;
using MemoryHandle = void*;

inline constexpr Code kSuccess = 0;
inline constexpr Code kContextNull = 107002;      // ACL_ERROR_RT_CONTEXT_NULL
inline constexpr Code kUnsupported = 207000;      // ACL_ERROR_RT_FEATURE_NOT_SUPPORT
inline constexpr Code kMemoryExhausted = 207001;  // ACL_ERROR_RT_MEMORY_ALLOCATION

inline constexpr std::uint32_t kEventSync = 0x1;
inline constexpr std::uint32_t kEventCaptureStreamProgress = 0x2;

enum class MallocPolicy : std::int32_t { HugeFirst = 0, Huge1GOnly = 6 };
enum class MemoryAttribute : std::int32_t { Hbm = 1, HbmHuge = 4, HbmHuge1G = 10 };
enum class EventStatus : std::int32_t { NotReady = 0, Complete = 1 };

struct MemoryLocation {
  std::uint32_t id;
  std::int32_t type;
};
inline constexpr std::int32_t kLocationDevice = 1;

struct PhysicalProperties {
  std::int32_t handle_type;      // 0: none
  std::int32_t allocation_type;  // 0: pinned
  MemoryAttribute attribute;
  MemoryLocation location;
  std::uint64_t reserve;
};

inline constexpr std::int32_t kDeviceToHost = 2;  // ACL_MEMCPY_DEVICE_TO_HOST
inline constexpr std::int32_t kThreadLevel = 0;   // ACL_RT_THREAD_LEVEL

struct Api {
  // Always present.
  Code (*set_device)(std::int32_t device);
  Code (*get_device)(std::int32_t* device);
  Code (*get_device_count)(std::uint32_t* count);
  Code (*get_current_context)(Context* context);
  Code (*set_current_context)(Context context);
  Code (*synchronize_device)();
  Code (*malloc_align32)(void** ptr, std::size_t bytes, MallocPolicy policy);
  Code (*free)(void* ptr);
  Code (*get_mem_info)(MemoryAttribute attribute, std::size_t* free, std::size_t* total);
  Code (*create_event)(Event* event, std::uint32_t flag);
  Code (*destroy_event)(Event event);
  Code (*record_event)(Event event, Stream stream);
  Code (*query_event)(Event event, EventStatus* status);
  Code (*synchronize_event)(Event event);

  // Null where the runtime lacks them.
  Code (*stream_wait_event)(Stream stream, Event event);
  Code (*memcpy)(void* dst, std::size_t dst_max, const void* src, std::size_t count,
                 std::int32_t kind);
  Code (*memset)(void* ptr, std::size_t max, std::int32_t value, std::size_t count);
  Code (*reserve_address)(void** ptr, std::size_t bytes, std::size_t alignment, void* expected,
                          std::uint64_t flags);
  Code (*release_address)(void* ptr);
  Code (*malloc_physical)(MemoryHandle* handle, std::size_t bytes,
                          const PhysicalProperties* properties, std::uint64_t flags);
  Code (*free_physical)(MemoryHandle handle);
  Code (*map)(void* ptr, std::size_t bytes, std::size_t offset, MemoryHandle handle,
              std::uint64_t flags);
  Code (*unmap)(void* ptr);
  Code (*peek_at_last_error)(std::int32_t level);
  Code (*get_last_error)(std::int32_t level);

  bool has_contents() const noexcept { return memcpy && memset; }
  bool has_virtual_memory() const noexcept {
    return reserve_address && release_address && malloc_physical && free_physical && map && unmap;
  }
};

// Throws std::runtime_error naming the library that can't be loaded or the function it lacks. The
// library stays loaded for the life of the process. Where LD_PRELOAD is set, functions of the
// global scope come before the library's.
Api load(const std::string& library);

// What `call` returns, which the caller deals with. The runtime keeps the code of a call that
// failed for the thread, and torch_npu takes that for the reason of whatever fails next: a failure
// that is no error of the program's, as of a device that is full or maps a page only once, must not
// stay there. One that was there before does.
template <typename Call>
Code told_by_code(const Api& api, Call call) {
  const bool can = api.peek_at_last_error != nullptr && api.get_last_error != nullptr;
  const bool clean = can && api.peek_at_last_error(kThreadLevel) == kSuccess;
  const Code code = call();
  if (clean && code != kSuccess && api.peek_at_last_error(kThreadLevel) == code) {
    (void)api.get_last_error(kThreadLevel);
  }
  return code;
}

// The functions shared by every driver table over AscendCL; all act on the thread's current device.
Code malloc_device(const Api& api, std::size_t bytes, bool huge_1g, std::uintptr_t* addr,
                   void (*warn)(const char* text));
Code malloc_physical(const Api& api, std::int32_t device, std::size_t bytes, bool huge_1g,
                     std::uintptr_t* handle, void (*warn)(const char* text));

}  // namespace npualloc::acl
