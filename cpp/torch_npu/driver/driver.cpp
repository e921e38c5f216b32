#include "driver.h"

#include <algorithm>
#include <string>

#include "../allocator/npu_allocator.h"
#include "../allocator/recording.h"
#include "../host.h"
#include "calls.h"
#include "debug.h"
#include "soc.h"
#include "torch_npu/csrc/core/npu/GetCANNInfo.h"

namespace npualloc::torch_npu_plugin {

namespace {

// acl_api.h declares AscendCL for itself; here the real headers are at hand.
static_assert(static_cast<int>(acl::MallocPolicy::HugeFirst) == ACL_MEM_MALLOC_HUGE_FIRST);
static_assert(static_cast<int>(acl::MallocPolicy::Huge1GOnly) == ACL_MEM_MALLOC_HUGE1G_ONLY);
static_assert(static_cast<int>(acl::MemoryAttribute::Hbm) == ACL_HBM_MEM);
static_assert(static_cast<int>(acl::MemoryAttribute::HbmHuge) == ACL_HBM_MEM_HUGE);
static_assert(static_cast<int>(acl::MemoryAttribute::HbmHuge1G) == ACL_HBM_MEM_HUGE1G);
static_assert(static_cast<int>(acl::EventStatus::NotReady) == ACL_EVENT_RECORDED_STATUS_NOT_READY);
static_assert(static_cast<int>(acl::EventStatus::Complete) == ACL_EVENT_RECORDED_STATUS_COMPLETE);
static_assert(acl::kEventSync == ACL_EVENT_SYNC);
static_assert(acl::kEventCaptureStreamProgress == ACL_EVENT_CAPTURE_STREAM_PROGRESS);
static_assert(acl::kMemoryExhausted == ACL_ERROR_RT_MEMORY_ALLOCATION);
static_assert(acl::kContextNull == ACL_ERROR_RT_CONTEXT_NULL);
static_assert(acl::kThreadLevel == ACL_RT_THREAD_LEVEL);
static_assert(acl::kLocationDevice == ACL_MEM_LOCATION_TYPE_DEVICE);
static_assert(sizeof(acl::PhysicalProperties) == sizeof(aclrtPhysicalMemProp));
static_assert(offsetof(acl::PhysicalProperties, location) ==
              offsetof(aclrtPhysicalMemProp, location));

std::int32_t run_free_callbacks_fn(void*, std::int32_t, std::int32_t* freed) {
  *freed = 0;
  return guarded([&] {
    for (const auto& name : stock::FreeNPUMemoryCallbacksRegistry()->Keys()) {
      if (stock::FreeNPUMemoryCallbacksRegistry()->Create(name)->Execute()) *freed = 1;
    }
    return acl::kSuccess;
  });
}

std::int32_t release_external_caches_fn(void*, std::int32_t device) {
  return while_up([&] {
    const DeviceScope scope(device);
    const recording::OwnWait own;
    host::release_workspaces(device, is_error_checked());
    return acl::kSuccess;
  });
}

void context_drop_fn(void*, std::uintptr_t context) { drop_handle(context); }

// A call that failed is no warning: an exception tells of it, or the core does without, as where
// the driver maps a page only once. The stock allocator says nothing then. A bug of the allocator
// is shown.
int shown_level(std::int32_t level) {
  return level < host::kLogError ? std::min<int>(level, host::kLogInfo) : level;
}

// What cannot be logged is no failure of the call that it tells of.
std::int32_t log_wanted_fn(void*, std::int32_t level) {
  try {
    return host::log_wanted(shown_level(level)) ? 1 : 0;
  } catch (...) {
    return 0;
  }
}

void log_fn(void*, std::int32_t level, const char* text, std::size_t length) {
  try {
    host::log(shown_level(level), std::string(text, length));
  } catch (...) {
  }
}

}  // namespace

const acl::Api& api() {
  static const acl::Api loaded = acl::load("libascendcl.so");
  return loaded;
}

DriverTable idle_driver_table() {
  DriverTable table{};
  add_memory_functions(table);
  add_wait_functions(table);
  table.run_free_callbacks = &run_free_callbacks_fn;
  table.release_external_caches = &release_external_caches_fn;
  table.context_drop = &context_drop_fn;
  table.log_wanted = &log_wanted_fn;
  table.log = &log_fn;
  return table;
}

const DriverTable& driver_table() {
  static const DriverTable made = [] {
    DriverTable table = idle_driver_table();
    if (api().has_virtual_memory()) add_virtual_memory_functions(table);
    add_debug_functions(table);
    return table;
  }();
  return made;
}

std::size_t pad_bytes() {
  static const std::size_t bytes = padding_for(soc_name(), GetCANNVersion("CANN"));
  return bytes;
}

}  // namespace npualloc::torch_npu_plugin
