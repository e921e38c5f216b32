// What the functions of the driver table have in common: exceptions stay on this side, and a call
// is made on the device it is for.
#pragma once

#include <cstdint>
#include <exception>

#include "../pch.h"
#include "../python/stack.h"
#include "driver.h"

namespace npualloc::torch_npu_plugin {

// Exceptions must not cross the core: they wait here for the caller on this thread.
void keep_exception(std::exception_ptr thrown) noexcept;

// Keeps one that torch_npu's task queue throws once, when an operator has failed, for whichever
// call can tell the program next (`take_untold`); others are thrown again each time, or are the
// core's.
void keep_untold(const std::exception_ptr& thrown) noexcept;

// Whether failed waits for a device are errors on this thread: see `CheckErrorScope`.
bool is_error_checked() noexcept;

// Whether this is one of torch_npu's own threads, which work through its task queue: waiting for
// the queue there would be waiting for itself.
bool is_queue_thread();

// What the call returns; `kForeignException` where it throws, with the exception kept.
template <typename Call>
std::int32_t guarded(Call call) noexcept {
  try {
    // torch_npu's waits take the interpreter's lock.
    return python::staying(call);
  } catch (...) {
    keep_exception(std::current_exception());
    return kForeignException;
  }
}

// As `guarded`; nothing, successfully, once the runtime is down.
template <class Call>
std::int32_t while_up(Call call) noexcept {
  return guarded([&]() -> std::int32_t { return runtime_is_up() ? call() : acl::kSuccess; });
}

inline c10::DeviceIndex index(std::int32_t device) { return static_cast<c10::DeviceIndex>(device); }
inline void* pointer(std::uintptr_t addr) { return reinterpret_cast<void*>(addr); }

// Makes a device current and the previous one again at the end.
class DeviceScope {
 public:
  explicit DeviceScope(std::int32_t device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  std::int32_t previous_ = 0;
  bool changed_ = false;
};

// Makes a device's primary context current and puts the thread's own back. Blocks are freed on
// threads that run in other contexts (the graph compiler's), where torch_npu's cached device says
// nothing.
class ContextScope {
 public:
  explicit ContextScope(std::int32_t device);
  ~ContextScope() { restore(); }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  void restore() noexcept;

  acl::Context previous_ = nullptr;
  std::int32_t previous_device_ = 0;
  bool had_context_ = false;
  bool changed_ = false;
};

// The functions of the table by topic.
void add_memory_functions(DriverTable& table);
void add_virtual_memory_functions(DriverTable& table);
void add_wait_functions(DriverTable& table);

}  // namespace npualloc::torch_npu_plugin
