#include "settings.h"

#include <cstdlib>
#include <string_view>

#include "../host.h"
#include "npu_allocator.h"
#include "rust/cxx.h"

namespace npualloc::torch_npu_plugin {

namespace {

// Whether a variable of torch_npu's has a number other than 0.
bool is_set(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && std::strtol(text, nullptr, 10) != 0;
}

}  // namespace

void NpuAllocator::apply_settings(const std::string& settings) {
  const Outcome outcome = [&] {
    const std::lock_guard<std::mutex> lock(init_mutex_);
    const Outcome applied = core().apply_any_settings(rust::Str(settings.data(), settings.size()));
    const bool early = applied.status == Status::Ok && core().device_count() == 0;
    if (early) early_settings_.push_back(settings);
    return applied;
  }();
  // Without the lock: what refuses them has trackers called first, which may want it.
  check(outcome);
  if (host::log_wanted(host::kLogInfo))
    host::log(host::kLogInfo, "npualloc: settings: " + settings);
}

const std::string& environment_config() {
  static const std::string first_seen = [] {
    const char* npu = std::getenv("PYTORCH_NPU_ALLOC_CONF");
    const char* generic = std::getenv("PYTORCH_ALLOC_CONF");
    const char* text = npu != nullptr ? npu : generic;
    return std::string(text != nullptr ? text : "");
  }();
  return first_seen;
}

const std::string& environment_common_config() {
  static const std::string first_seen = [] {
    const char* cuda = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
    const char* text = cuda != nullptr ? cuda : std::getenv("PYTORCH_HIP_ALLOC_CONF");
    return std::string(text != nullptr ? text : "");
  }();
  return first_seen;
}

std::string environment_debug() {
  const char* words = std::getenv("NPUALLOC_DEBUG");
  return words != nullptr ? words : "";
}

bool warnings_are_off() {
  static const bool off = is_set("TORCH_NPU_WARNING_DISABLE");
  return off;
}

bool queue_for_each_stream() {
  static const bool wanted = is_set("PER_STREAM_QUEUE");
  return wanted;
}

bool environment_uncached() {
  const char* text = std::getenv("PYTORCH_NO_NPU_MEMORY_CACHING");
  const std::string_view value = text == nullptr ? "" : text;
  TORCH_CHECK(value.empty() || value == "0" || value == "1",
              "PYTORCH_NO_NPU_MEMORY_CACHING should be 0 or 1.", PTA_ERROR(ErrCode::VALUE));
  return value == "1";
}

bool force_uncached() {
  static const bool uncached = environment_uncached();
  return uncached;
}

}  // namespace npualloc::torch_npu_plugin
