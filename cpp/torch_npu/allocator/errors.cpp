// Failures as the stock allocator reports them, and who is told about them.
#include <algorithm>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include "../../c10/convert.h"
#include "../driver/driver.h"
#include "../host.h"
#include "npu_allocator.h"

namespace npualloc::torch_npu_plugin {

namespace {

bool is_config(Status status) {
  return status == Status::ConfigValue || status == Status::ConfigRuntime ||
         status == Status::ConfigNotANumber || status == Status::ConfigOutOfRange;
}

// The core's "<call> failed, error code is <code>", cut in two: the runtime's function, as programs
// that look for it know it, and the rest.
std::pair<std::string, std::string> failed_call(const std::string& text) {
  static constexpr std::pair<std::string_view, const char*> kFunctions[] = {
      {"malloc", "aclrtMallocAlign32"},
      {"free", "aclrtFree"},
      {"memory_info", "aclrtGetMemInfo"},
      {"reserve_address", "aclrtReserveMemAddress"},
      {"release_address", "aclrtReleaseMemAddress"},
      {"malloc_physical", "aclrtMallocPhysical"},
      {"free_physical", "aclrtFreePhysical"},
      {"map", "aclrtMapMem"},
      {"unmap", "aclrtUnmapMem"},
  };
  const std::size_t end = std::min(text.find(" failed, error code is"), text.size());
  const std::string_view call = std::string_view(text).substr(0, end);
  for (const auto& [name, function] : kFunctions) {
    if (name == call) return {function, text.substr(end)};
  }
  const std::size_t code = std::min(text.find(", error code is"), text.size());
  return {text.substr(0, code), text.substr(code)};
}

}  // namespace

void NpuAllocator::attachOutOfMemoryObserver(stock::OutOfMemoryObserver observer) {
  const std::lock_guard<std::mutex> lock(observers_mutex_);
  oom_observers_.push_back(std::move(observer));
}

void NpuAllocator::attachOomRejectionObserver(stock::OomRejectionObserver observer) {
  const std::lock_guard<std::mutex> lock(observers_mutex_);
  rejection_observers_.push_back(std::move(observer));
}

void NpuAllocator::raise_last() const {
  const Outcome failure = ffi::last_failure();
  raise(failure.status, failure.code);
}

void NpuAllocator::raise(Status status, std::int32_t code) const {
  // Taken first: a tracker or an observer may use the allocator and fail in turn.
  const rust::String text = ffi::take_error_message();
  std::string message(text.data(), text.size());
  const OomReport report = ffi::last_oom_report();
  const std::exception_ptr foreign = code == kForeignException ? take_foreign() : nullptr;
  try {
    deliver_trace();
  } catch (const std::exception& error) {
    TORCH_WARN("npualloc: a tracker of the history failed: ", error.what());
  }
  if (status == Status::DriverError) {
    if (foreign != nullptr) std::rethrow_exception(foreign);
    const auto [function, rest] = failed_call(message);
    NPU_CHECK_ERROR(code, function.c_str());
    // Of a function that the runtime does not have it only warns.
    message = function + rest;
  }
  if (status == Status::OutOfMemory || status == Status::Rejected) {
    if (host::log_wanted(host::kLogError)) {
      // Line by line: the logger drops what is longer than a kilobyte.
      std::istringstream lines(message);
      for (std::string line; std::getline(lines, line);) host::log(host::kLogError, line);
    }
    std::vector<stock::OutOfMemoryObserver> oom_observers;
    std::vector<stock::OomRejectionObserver> rejection_observers;
    {
      const std::lock_guard<std::mutex> lock(observers_mutex_);
      oom_observers = oom_observers_;
      rejection_observers = rejection_observers_;
    }
    if (status == Status::OutOfMemory) {
      for (const auto& observer : oom_observers) {
        observer(report.device, static_cast<int64_t>(report.alloc_size),
                 static_cast<int64_t>(report.limit), static_cast<int64_t>(report.device_free));
      }
    } else if (!rejection_observers.empty()) {
      // On a thread of their own, as the stock allocator has it: a rejection is expected and must
      // be quick. Nobody could catch what they throw.
      std::thread([observers = std::move(rejection_observers), report] {
        for (const auto& observer : observers) {
          try {
            observer(report.device, report.alloc_size, report.reserved, report.device_total);
          } catch (const std::exception& error) {
            TORCH_WARN("npualloc: an observer of rejected allocations failed: ", error.what());
          } catch (...) {
            TORCH_WARN("npualloc: an observer of rejected allocations failed");
          }
        }
      }).detach();
    }
  }
  if (status == Status::InvalidDevice || status == Status::InvalidArgument) {
    TORCH_CHECK(false, message, PTA_ERROR(ErrCode::PARAM));
  }
  if (is_config(status) && code >= 0) {
    const auto suffix =
        formatErrorCode(static_cast<SubModule>(code / 1000), static_cast<ErrCode>(code % 1000));
    c10_backend::throw_c10(status, message + suffix);
  }
  c10_backend::throw_c10(status, message);
}

}  // namespace npualloc::torch_npu_plugin
