#include "driver.h"

#include <cstdio>
#include <exception>
#include <memory>
#include <optional>

#include "debug.h"
#include "hccl.h"
#include "host.h"
#include "ipc.h"
#include "npu_allocator.h"
#include "python_stack.h"
#include "recording.h"
#include "settings.h"
#include "soc.h"
#include "stream_names.h"
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
static_assert(acl::kLocationDevice == ACL_MEM_LOCATION_TYPE_DEVICE);
static_assert(sizeof(acl::PhysicalProperties) == sizeof(aclrtPhysicalMemProp));
static_assert(offsetof(acl::PhysicalProperties, location) ==
              offsetof(aclrtPhysicalMemProp, location));

thread_local std::exception_ptr kept_exception;
thread_local bool check_error_enabled = true;

// Exceptions must not cross the core: they wait in `kept_exception` for the caller on this thread.
template <typename Call>
std::int32_t guarded(Call call) noexcept {
  try {
    // torch_npu's waits take the interpreter's lock.
    return python::staying(call);
  } catch (...) {
    kept_exception = std::current_exception();
    return kForeignException;
  }
}

// After torch_npu has finalised the runtime no driver call may be made.
bool runtime_is_up() { return c10_npu::NpuSysCtrl::GetInstance().GetInitFlag(); }

// As `guarded`; nothing, successfully, once the runtime is down.
template <class Call>
std::int32_t while_up(Call call) noexcept {
  return guarded([&]() -> std::int32_t { return runtime_is_up() ? call() : acl::kSuccess; });
}

c10::DeviceIndex index(std::int32_t device) { return static_cast<c10::DeviceIndex>(device); }
void* pointer(std::uintptr_t addr) { return reinterpret_cast<void*>(addr); }

// torch_npu makes the runtime's event when it is recorded first, so what it is for can be said
// until then: fences are events that streams can wait for.
class Event {
 public:
  c10_npu::NPUEvent* operator->() { return event_.get(); }
  c10_npu::NPUEvent& as_fence() {
    if (!is_fence_) event_ = std::make_unique<c10_npu::NPUEvent>(ACL_EVENT_SYNC);
    is_fence_ = true;
    return *event_;
  }

 private:
  std::unique_ptr<c10_npu::NPUEvent> event_ =
      std::make_unique<c10_npu::NPUEvent>(ACL_EVENT_CAPTURE_STREAM_PROGRESS);
  bool is_fence_ = false;
};

Event& event_of(std::uintptr_t event) { return *reinterpret_cast<Event*>(event); }

// To the standard error, as torch_npu's own warnings: a program may turn Python's into exceptions,
// which would fail the request.
void warn_once(const char* text) {
  static std::atomic<bool> first{true};
  if (!first.exchange(false) || warnings_are_off()) return;
  const c10::SourceLocation here{__func__, __FILE__, __LINE__};
  c10::WarningHandler().process(c10::Warning(c10::UserWarning(), here, text, false));
}

// The primary context of a device.
acl::Context primary_context(std::int32_t device) {
  constexpr std::size_t kMaxDevices = 64;
  static std::atomic<acl::Context> contexts[kMaxDevices]{};
  const auto slot = static_cast<std::size_t>(device);
  acl::Context context =
      slot < kMaxDevices ? contexts[slot].load(std::memory_order_acquire) : nullptr;
  if (context == nullptr) {
    NPU_CHECK_ERROR(api().set_device(device), "aclrtSetDevice");
    NPU_CHECK_ERROR(api().get_current_context(&context), "aclrtGetCurrentContext");
    if (slot < kMaxDevices) contexts[slot].store(context, std::memory_order_release);
  }
  return context;
}

// Makes a device's primary context current and puts the thread's own back. Blocks are freed on
// threads that run in other contexts (the graph compiler's), where torch_npu's cached device says
// nothing.
class ContextScope {
 public:
  explicit ContextScope(std::int32_t device) {
    had_context_ = api().get_current_context(&previous_) == acl::kSuccess;
    NPU_CHECK_ERROR(c10_npu::GetDevice(&previous_device_));
    const acl::Context wanted = primary_context(device);
    if (had_context_ && wanted == previous_) return;
    NPU_CHECK_ERROR(api().set_current_context(wanted), "aclrtSetCurrentContext");
    changed_ = had_context_;
    try {
      NPU_CHECK_ERROR(c10_npu::SetDevice(index(device)));
    } catch (...) {
      restore();
      throw;
    }
  }
  ~ContextScope() { restore(); }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  void restore() noexcept {
    if (!changed_) return;
    // Changing the context changes the device behind torch_npu's back; tell it. A failure here
    // would come back at the thread's next call anyway.
    (void)api().set_current_context(previous_);
    try {
      (void)c10_npu::SetDevice(index(previous_device_));
    } catch (...) {
    }
  }

  acl::Context previous_ = nullptr;
  std::int32_t previous_device_ = 0;
  bool had_context_ = false;
  bool changed_ = false;
};

// Makes a device current and the previous one again at the end.
class DeviceScope {
 public:
  explicit DeviceScope(std::int32_t device) {
    NPU_CHECK_ERROR(c10_npu::GetDevice(&previous_));
    changed_ = previous_ != device;
    if (changed_) NPU_CHECK_ERROR(c10_npu::SetDevice(index(device)));
  }
  ~DeviceScope() {
    if (!changed_) return;
    try {
      (void)c10_npu::MaybeSetDevice(index(previous_));
    } catch (...) {
    }
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  std::int32_t previous_ = 0;
  bool changed_ = false;
};

std::int32_t malloc_fn(void*, std::int32_t device, std::size_t bytes, std::int32_t huge_1g,
                       std::uintptr_t* addr) {
  return guarded([&] {
    const DeviceScope scope(device);
    return acl::malloc_device(api(), bytes, huge_1g != 0, addr, &warn_once);
  });
}

std::int32_t free_fn(void*, std::int32_t device, std::uintptr_t addr) {
  return while_up([&] {
    const DeviceScope scope(device);
    exports().close_base(addr);
    return api().free(pointer(addr));
  });
}

std::int32_t memory_info_fn(void*, std::int32_t device, std::size_t* free, std::size_t* total) {
  return guarded([&] {
    const DeviceScope scope(device);
    return api().get_mem_info(acl::MemoryAttribute::Hbm, free, total);
  });
}

std::int32_t synchronize_device_fn(void*, std::int32_t device) {
  return while_up([&] {
    const DeviceScope scope(device);
    const recording::OwnWait own;
    c10_npu::npuSynchronizeDevice(check_error_enabled);
    return acl::kSuccess;
  });
}

std::int32_t event_create_fn(void*, std::int32_t, std::uintptr_t* event) {
  return guarded([&] {
    *event = reinterpret_cast<std::uintptr_t>(new Event);
    return acl::kSuccess;
  });
}

std::int32_t event_destroy_fn(void*, std::uintptr_t event) {
  return guarded([&] {
    delete &event_of(event);
    return acl::kSuccess;
  });
}

c10_npu::NPUStream stream_of(StreamToken token) {
  const c10::Device device(c10::DeviceType::PrivateUse1, index(token.device));
  const c10::Stream stream(c10::Stream::UNSAFE, device, token.id);
  return c10_npu::NPUStream(c10_npu::NPUStream::UNCHECKED, stream);
}

// Goes through torch_npu's task queue, behind the kernels it must follow.
std::int32_t event_record_fn(void*, std::uintptr_t event, StreamToken stream) {
  return while_up([&] {
    const ContextScope scope(stream.device);
    event_of(event)->record(stream_of(stream));
    return acl::kSuccess;
  });
}

// Streams that torch_npu did not make have no names here; for those the core waits for the device.
std::int32_t event_record_fence_fn(void*, std::int32_t device, std::uintptr_t event,
                                   std::uintptr_t stream) {
  return while_up([&] {
    const ContextScope scope(device);
    const auto named = stream_names().find(index(device), stream);
    if (!named.has_value()) return acl::kUnsupported;
    event_of(event).as_fence().record(*named);
    return acl::kSuccess;
  });
}

// Goes through the task queue too, so that it comes before the kernels that are submitted next.
std::int32_t stream_wait_fn(void*, std::int32_t device, std::uintptr_t stream,
                            std::uintptr_t event) {
  return while_up([&] {
    const ContextScope scope(device);
    const auto named = stream_names().find(index(device), stream);
    if (!named.has_value()) return acl::kUnsupported;
    std::optional<python::Released> released;
    if (queue_for_each_stream()) released.emplace();
    event_of(event)->block(*named);
    return acl::kSuccess;
  });
}

std::int32_t event_query_fn(void*, std::uintptr_t event, std::int32_t* completed) {
  return guarded([&] {
    *completed = !runtime_is_up() || event_of(event)->query();
    return acl::kSuccess;
  });
}

std::int32_t event_synchronize_fn(void*, std::uintptr_t event) {
  return while_up([&] {
    // A queue's thread may need the interpreter's lock before it comes to the event: CANN compiles
    // operators of the old path in Python. torch_npu lets it go for such waits of its own, too.
    const python::Released released;
    try {
      event_of(event)->synchronize();
    } catch (const c10::Error& error) {
      // A device that was stopped completes nothing; what it did is over all the same.
      if (check_error_enabled) throw;
      TORCH_WARN("npualloc: waiting for an event failed: ", error.what_without_backtrace());
    }
    return acl::kSuccess;
  });
}

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
    host::release_workspaces(device, check_error_enabled);
    return acl::kSuccess;
  });
}

std::int32_t reserve_address_fn(void*, std::int32_t device, std::size_t bytes,
                                std::uintptr_t* addr) {
  return guarded([&] {
    const DeviceScope scope(device);
    stream_names().note_current(index(device));
    void* ptr = nullptr;
    const acl::Code code = api().reserve_address(&ptr, bytes, 0, nullptr, 1);
    if (code != acl::kSuccess) return code;
    try {
      hccl_mirror().reserved(device, reinterpret_cast<std::uintptr_t>(ptr), bytes);
    } catch (...) {
      // The core takes an error for "nothing changed".
      (void)api().release_address(ptr);
      throw;
    }
    *addr = reinterpret_cast<std::uintptr_t>(ptr);
    return code;
  });
}

std::int32_t release_address_fn(void*, std::int32_t device, std::uintptr_t addr) {
  return while_up([&] {
    const DeviceScope scope(device);
    // Before the driver has the range back: then another thread may be given it.
    const std::size_t bytes = hccl_mirror().released(device, addr);
    const acl::Code code = api().release_address(pointer(addr));
    if (code != acl::kSuccess && bytes != 0) hccl_mirror().reserved(device, addr, bytes);
    return code;
  });
}

std::int32_t malloc_physical_fn(void*, std::int32_t device, std::size_t bytes, std::int32_t huge_1g,
                                std::uintptr_t* handle) {
  return guarded([&] {
    const DeviceScope scope(device);
    return acl::malloc_physical(api(), device, bytes, huge_1g != 0, handle, &warn_once);
  });
}

std::int32_t free_physical_fn(void*, std::int32_t device, std::uintptr_t handle) {
  return while_up([&] {
    exports().forget_handle(handle);
    const DeviceScope scope(device);
    return api().free_physical(pointer(handle));
  });
}

std::int32_t map_fn(void*, std::int32_t device, std::uintptr_t addr, std::size_t bytes,
                    std::uintptr_t handle) {
  return guarded([&] {
    const DeviceScope scope(device);
    // The core finds out at the start that one address is all there is.
    if (is_zero_copy_wanted() && hccl_mirror().is_mapped(device, handle)) return acl::kUnsupported;
    const acl::Code code = api().map(pointer(addr), bytes, 0, pointer(handle), 0);
    if (code != acl::kSuccess) return code;
    try {
      hccl_mirror().mapped(device, addr, bytes, handle);
    } catch (...) {
      (void)api().unmap(pointer(addr));
      throw;
    }
    return code;
  });
}

std::int32_t unmap_fn(void*, std::int32_t device, std::uintptr_t addr) {
  return while_up([&] {
    const DeviceScope scope(device);
    const acl::Code code = api().unmap(pointer(addr));
    if (code == acl::kSuccess) hccl_mirror().unmapped(device, addr);
    return code;
  });
}

// Asked with the device lock held: everything here only reads.
template <typename Find>
std::int32_t is_captured(Find find, std::int32_t* capturing) {
  *capturing = 0;
  return guarded([&] {
    const c10_npu::NPUStream stream = find();
    *capturing =
        c10_npu::captureStatusMayInitCtx(stream.stream(false)) != c10_npu::CaptureStatus::None;
    return acl::kSuccess;
  });
}

std::int32_t is_capturing_fn(void*, std::int32_t device, std::int32_t* capturing) {
  return is_captured([&] { return c10_npu::getCurrentNPUStream(index(device)); }, capturing);
}

std::int32_t is_stream_capturing_fn(void*, StreamToken token, std::int32_t* capturing) {
  return is_captured([&] { return stream_of(token); }, capturing);
}

std::shared_ptr<stock::NPUAllocator> pool_allocator(std::int32_t device, std::uint64_t first,
                                                    std::uint64_t second) {
  auto found = the_allocator.load()->pool_allocators().find(device, {first, second});
  TORCH_INTERNAL_ASSERT(found != nullptr, "npualloc: memory pool (", first, ", ", second,
                        ") has no allocator");
  return found;
}

std::int32_t pool_malloc_fn(void*, std::int32_t device, std::uint64_t first, std::uint64_t second,
                            std::size_t bytes, std::uintptr_t* addr) {
  return guarded([&] {
    const DeviceScope scope(device);
    void* ptr = pool_allocator(device, first, second)->raw_alloc(bytes);
    *addr = reinterpret_cast<std::uintptr_t>(ptr);
    return ptr == nullptr ? acl::kMemoryExhausted : acl::kSuccess;
  });
}

std::int32_t pool_free_fn(void*, std::int32_t device, std::uint64_t first, std::uint64_t second,
                          std::uintptr_t addr) {
  return guarded([&] {
    const DeviceScope scope(device);
    exports().close_base(addr);
    pool_allocator(device, first, second)->raw_delete(pointer(addr));
    return acl::kSuccess;
  });
}

void context_drop_fn(void*, std::uintptr_t context) { drop_handle(context); }

// What cannot be logged is no failure of the call that it tells of.
std::int32_t log_wanted_fn(void*, std::int32_t level) {
  try {
    return host::log_wanted(level) ? 1 : 0;
  } catch (...) {
    return 0;
  }
}

void log_fn(void*, std::int32_t level, const char* text, std::size_t length) {
  try {
    host::log(level, std::string(text, length));
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
  table.malloc = &malloc_fn;
  table.free = &free_fn;
  table.memory_info = &memory_info_fn;
  table.synchronize_device = &synchronize_device_fn;
  table.event_create = &event_create_fn;
  table.event_destroy = &event_destroy_fn;
  table.event_record = &event_record_fn;
  table.event_record_fence = &event_record_fence_fn;
  if (api().stream_wait_event != nullptr) table.stream_wait = &stream_wait_fn;
  table.event_query = &event_query_fn;
  table.event_synchronize = &event_synchronize_fn;
  table.run_free_callbacks = &run_free_callbacks_fn;
  table.release_external_caches = &release_external_caches_fn;
  table.is_capturing = &is_capturing_fn;
  table.is_stream_capturing = &is_stream_capturing_fn;
  table.pool_malloc = &pool_malloc_fn;
  table.pool_free = &pool_free_fn;
  table.context_drop = &context_drop_fn;
  table.log_wanted = &log_wanted_fn;
  table.log = &log_fn;
  return table;
}

const DriverTable& driver_table() {
  static const DriverTable made = [] {
    DriverTable table = idle_driver_table();
    if (api().has_virtual_memory()) {
      table.reserve_address = &reserve_address_fn;
      table.release_address = &release_address_fn;
      table.malloc_physical = &malloc_physical_fn;
      table.free_physical = &free_physical_fn;
      table.map = &map_fn;
      table.unmap = &unmap_fn;
    }
    add_debug_functions(table);
    return table;
  }();
  return made;
}

std::exception_ptr take_foreign() { return std::exchange(kept_exception, nullptr); }

std::size_t pad_bytes() {
  static const std::size_t bytes = padding_for(soc_name(), GetCANNVersion("CANN"));
  return bytes;
}

CheckErrorScope::CheckErrorScope(bool check_error)
    : previous_(std::exchange(check_error_enabled, check_error)) {}

CheckErrorScope::~CheckErrorScope() { check_error_enabled = previous_; }

}  // namespace npualloc::torch_npu_plugin
