#include "npualloc/acl_driver.h"

#include <cstdio>
#include <stdexcept>

#include "acl_api.h"

namespace npualloc {

namespace {

using acl::Api;
using acl::Code;
using acl::kSuccess;

const Api& api_of(void* user) { return *static_cast<const Api*>(user); }

// Makes `device` the thread's current one, and the thread's context current again at the end: it
// may be one of the program's own, which setting the device would not bring back. A thread without
// any keeps `device`: so it is in the device's context with its next call, too. The runtime may
// name a default device in a thread without a context.
class DeviceScope {
 public:
  DeviceScope(const Api& api, std::int32_t device) : api_(api) {
    std::int32_t current = -1;
    const bool had_context =
        acl::told_by_code(api, [&] { return api.get_current_context(&previous_); }) == kSuccess;
    if (had_context && api.get_device(&current) == kSuccess && current == device) return;
    code_ = api.set_device(device);
    restore_ = had_context && code_ == kSuccess;
  }
  ~DeviceScope() {
    if (restore_) api_.set_current_context(previous_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  Code code() const noexcept { return code_; }

 private:
  const Api& api_;
  acl::Context previous_ = nullptr;
  Code code_ = kSuccess;
  bool restore_ = false;
};

// Runs `call` with `device` current.
template <typename Call>
Code on_device(void* user, std::int32_t device, Call call) {
  const Api& api = api_of(user);
  const DeviceScope scope(api, device);
  return scope.code() != kSuccess ? scope.code() : call(api);
}

void warn(const char* text) { std::fprintf(stderr, "npualloc: %s\n", text); }

void* pointer(std::uintptr_t addr) { return reinterpret_cast<void*>(addr); }

std::int32_t malloc_fn(void* user, std::int32_t device, std::size_t bytes, std::int32_t huge_1g,
                       std::uintptr_t* addr) {
  return on_device(user, device, [&](const Api& api) {
    return acl::malloc_device(api, bytes, huge_1g != 0, addr, &warn);
  });
}

std::int32_t free_fn(void* user, std::int32_t device, std::uintptr_t addr) {
  return on_device(user, device, [&](const Api& api) { return api.free(pointer(addr)); });
}

std::int32_t memory_info_fn(void* user, std::int32_t device, std::size_t* free,
                            std::size_t* total) {
  return on_device(user, device, [&](const Api& api) {
    return api.get_mem_info(acl::MemoryAttribute::Hbm, free, total);
  });
}

std::int32_t synchronize_device_fn(void* user, std::int32_t device) {
  return on_device(user, device, [](const Api& api) { return api.synchronize_device(); });
}

std::int32_t event_create_fn(void* user, std::int32_t device, std::uintptr_t* event) {
  return on_device(user, device, [&](const Api& api) {
    acl::Event made = nullptr;
    const Code code = api.create_event(&made, acl::kEventSync);
    *event = reinterpret_cast<std::uintptr_t>(made);
    return code;
  });
}

std::int32_t event_destroy_fn(void* user, std::uintptr_t event) {
  return api_of(user).destroy_event(pointer(event));
}

std::int32_t event_record_fn(void* user, std::uintptr_t event, StreamToken stream) {
  return on_device(user, stream.device, [&](const Api& api) {
    return api.record_event(pointer(event), pointer(static_cast<std::uintptr_t>(stream.id)));
  });
}

std::int32_t event_record_fence_fn(void* user, std::int32_t device, std::uintptr_t event,
                                   std::uintptr_t stream) {
  return on_device(user, device, [&](const Api& api) {
    return api.record_event(pointer(event), pointer(stream));
  });
}

std::int32_t stream_wait_fn(void* user, std::int32_t device, std::uintptr_t stream,
                            std::uintptr_t event) {
  return on_device(user, device, [&](const Api& api) {
    return api.stream_wait_event(pointer(stream), pointer(event));
  });
}

std::int32_t event_query_fn(void* user, std::uintptr_t event, std::int32_t* completed) {
  acl::EventStatus status = acl::EventStatus::NotReady;
  const Code code = api_of(user).query_event(pointer(event), &status);
  *completed = status == acl::EventStatus::Complete;
  return code;
}

std::int32_t event_synchronize_fn(void* user, std::uintptr_t event) {
  return api_of(user).synchronize_event(pointer(event));
}

// A program without torch has neither free-memory callbacks nor operator workspaces.
std::int32_t run_free_callbacks_fn(void*, std::int32_t, std::int32_t* freed) {
  *freed = 0;
  return kSuccess;
}

std::int32_t release_external_caches_fn(void*, std::int32_t) { return kSuccess; }

std::int32_t reserve_address_fn(void* user, std::int32_t device, std::size_t bytes,
                                std::uintptr_t* addr) {
  return on_device(user, device, [&](const Api& api) {
    void* ptr = nullptr;
    // Flag 1: huge pages.
    const Code code =
        acl::told_by_code(api, [&] { return api.reserve_address(&ptr, bytes, 0, nullptr, 1); });
    *addr = reinterpret_cast<std::uintptr_t>(ptr);
    return code;
  });
}

std::int32_t release_address_fn(void* user, std::int32_t device, std::uintptr_t addr) {
  return on_device(user, device,
                   [&](const Api& api) { return api.release_address(pointer(addr)); });
}

std::int32_t malloc_physical_fn(void* user, std::int32_t device, std::size_t bytes,
                                std::int32_t huge_1g, std::uintptr_t* handle) {
  return on_device(user, device, [&](const Api& api) {
    return acl::malloc_physical(api, device, bytes, huge_1g != 0, handle, &warn);
  });
}

std::int32_t free_physical_fn(void* user, std::int32_t device, std::uintptr_t handle) {
  return on_device(user, device,
                   [&](const Api& api) { return api.free_physical(pointer(handle)); });
}

std::int32_t map_fn(void* user, std::int32_t device, std::uintptr_t addr, std::size_t bytes,
                    std::uintptr_t handle) {
  return on_device(user, device, [&](const Api& api) {
    return acl::told_by_code(api,
                             [&] { return api.map(pointer(addr), bytes, 0, pointer(handle), 0); });
  });
}

std::int32_t unmap_fn(void* user, std::int32_t device, std::uintptr_t addr) {
  return on_device(user, device, [&](const Api& api) { return api.unmap(pointer(addr)); });
}

std::int32_t settle_fn(void* user, std::int32_t device) {
  return synchronize_device_fn(user, device);
}

std::int32_t fill_fn(void* user, std::int32_t device, std::uintptr_t addr, std::size_t bytes,
                     std::uint8_t value) {
  return on_device(user, device, [&](const Api& api) {
    return acl::told_by_code(api, [&] { return api.memset(pointer(addr), bytes, value, bytes); });
  });
}

std::int32_t read_fn(void* user, std::int32_t device, std::uintptr_t addr, std::size_t bytes,
                     std::uint8_t* into) {
  return on_device(user, device, [&](const Api& api) {
    return acl::told_by_code(
        api, [&] { return api.memcpy(into, bytes, pointer(addr), bytes, acl::kDeviceToHost); });
  });
}

}  // namespace

AclDriver::AclDriver(const std::string& library)
    : api_(std::make_unique<Api>(acl::load(library))) {}

AclDriver::~AclDriver() = default;

DriverTable AclDriver::table() const noexcept {
  DriverTable table{};
  table.user = api_.get();
  table.malloc = &malloc_fn;
  table.free = &free_fn;
  table.memory_info = &memory_info_fn;
  table.synchronize_device = &synchronize_device_fn;
  table.event_create = &event_create_fn;
  table.event_destroy = &event_destroy_fn;
  table.event_record = &event_record_fn;
  // All events are such that streams can wait for.
  table.event_record_for_streams = &event_record_fn;
  table.event_record_fence = &event_record_fence_fn;
  if (api_->stream_wait_event != nullptr) table.stream_wait = &stream_wait_fn;
  table.event_query = &event_query_fn;
  table.event_synchronize = &event_synchronize_fn;
  table.run_free_callbacks = &run_free_callbacks_fn;
  table.release_external_caches = &release_external_caches_fn;
  if (api_->has_virtual_memory()) {
    table.reserve_address = &reserve_address_fn;
    table.release_address = &release_address_fn;
    table.malloc_physical = &malloc_physical_fn;
    table.free_physical = &free_physical_fn;
    table.map = &map_fn;
    table.unmap = &unmap_fn;
  }
  if (api_->has_contents()) {
    table.settle = &settle_fn;
    table.fill = &fill_fn;
    table.read = &read_fn;
  }
  return table;
}

int AclDriver::device_count() const {
  std::uint32_t count = 0;
  const Code code = api_->get_device_count(&count);
  if (code != kSuccess) {
    throw std::runtime_error("npualloc: aclrtGetDeviceCount failed, error code is " +
                             std::to_string(code));
  }
  return static_cast<int>(count);
}

}  // namespace npualloc
