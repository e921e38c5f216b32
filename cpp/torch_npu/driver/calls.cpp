#include "calls.h"

#include <pthread.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

namespace npualloc::torch_npu_plugin {

namespace {

thread_local std::exception_ptr kept_exception;
thread_local bool check_error_enabled = true;

std::mutex untold_mutex;
std::exception_ptr untold;
std::atomic<bool> any_untold{false};
std::atomic<void (*)()> untold_kept{nullptr};

// How the task queue's text for a failed operator begins.
constexpr const char* kOperatorFailed = "The Inner error is reported as above";

bool is_thrown_once(const std::exception_ptr& thrown) noexcept {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    return std::strstr(error.what(), kOperatorFailed) != nullptr;
  } catch (...) {
    return false;
  }
}

// Whether the thread has a context, and which.
bool has_context(acl::Context* context) {
  return acl::told_by_code(api(), [&] { return api().get_current_context(context); }) ==
         acl::kSuccess;
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

}  // namespace

bool is_queue_thread() {
  static thread_local const bool is = [] {
    char name[16] = {};
    if (pthread_getname_np(pthread_self(), name, sizeof name) != 0) return false;
    const std::string_view text(name);
    return text == "acl_thread" || text == "release_thread";
  }();
  return is;
}

bool runtime_is_up() { return c10_npu::NpuSysCtrl::GetInstance().GetInitFlag(); }

void keep_exception(std::exception_ptr thrown) noexcept {
  keep_untold(thrown);
  kept_exception = std::move(thrown);
}

void keep_untold(const std::exception_ptr& thrown) noexcept {
  if (!is_thrown_once(thrown)) return;
  {
    const std::lock_guard<std::mutex> lock(untold_mutex);
    untold = thrown;
    any_untold.store(true);
  }
  if (auto* tell = untold_kept.load()) tell();
}

std::exception_ptr take_foreign() {
  std::exception_ptr mine = std::exchange(kept_exception, nullptr);
  const std::lock_guard<std::mutex> lock(untold_mutex);
  if (mine != nullptr && untold == mine) {
    untold = nullptr;
    any_untold.store(false);
  }
  return mine;
}

std::exception_ptr take_untold() {
  const std::lock_guard<std::mutex> lock(untold_mutex);
  any_untold.store(false);
  return std::exchange(untold, nullptr);
}

bool has_untold() { return any_untold.load(); }

void call_when_untold(void (*tell)()) { untold_kept.store(tell); }

bool is_error_checked() noexcept { return check_error_enabled; }

CheckErrorScope::CheckErrorScope(bool check_error)
    : previous_(std::exchange(check_error_enabled, check_error)) {}

CheckErrorScope::~CheckErrorScope() { check_error_enabled = previous_; }

DeviceScope::DeviceScope(std::int32_t device) {
  NPU_CHECK_ERROR(c10_npu::GetDevice(&previous_));
  changed_ = previous_ != device;
  // A thread that has no context yet is on device 0 for torch_npu. Its default device helps from
  // CANN 8.3 on; before, a call would fail. Who has one keeps it: that is asked once.
  thread_local bool in_context = false;
  acl::Context context = nullptr;
  if (changed_ || !(in_context || has_context(&context))) {
    NPU_CHECK_ERROR(c10_npu::SetDevice(index(device)));
  }
  in_context = true;
}

DeviceScope::~DeviceScope() {
  if (!changed_) return;
  try {
    (void)c10_npu::MaybeSetDevice(index(previous_));
  } catch (...) {
  }
}

ContextScope::ContextScope(std::int32_t device) {
  had_context_ = has_context(&previous_);
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

void ContextScope::restore() noexcept {
  if (!changed_) return;
  // Changing the context changes the device behind torch_npu's back; tell it first, as that puts
  // the device's own context in place of the thread's. A failure here would come back at the
  // thread's next call anyway.
  try {
    (void)c10_npu::SetDevice(index(previous_device_));
  } catch (...) {
  }
  (void)api().set_current_context(previous_);
}

}  // namespace npualloc::torch_npu_plugin
