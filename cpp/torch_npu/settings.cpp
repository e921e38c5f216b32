#include "settings.h"

#include <cstdlib>

#include "got_hook.h"
#include "npu_allocator.h"
#include "rust/cxx.h"

namespace npualloc::torch_npu_plugin {

namespace {

// AcceleratorAllocatorConfig::parseArgs(std::string const&): torch_npu hands every settings text,
// the environment's included, to this function of libc10 after it has checked the keys, and keeps
// the rest to itself. So this import is where settings can be seen from outside the wheel.
constexpr const char* kParseArgs =
    "_ZN3c1016CachingAllocator26AcceleratorAllocatorConfig9parseArgsERKNSt7__cxx1112basic_"
    "stringIcSt11"
    "char_traitsIcESaIcEEE";

void apply(const std::string& settings) {
  const NpuAllocator* allocator = the_allocator.load(std::memory_order_acquire);
  // The environment's text comes by when torch_npu first looks at its own settings; the core has
  // it.
  if (allocator == nullptr || settings == allocator->config()) return;
  try {
    allocator->core().apply_settings(rust::Str(settings.data(), settings.size()));
  } catch (const rust::Error& error) {
    TORCH_CHECK(false, error.what(), PTA_ERROR(ErrCode::VALUE));
  }
}

void parse_args(c10::CachingAllocator::AcceleratorAllocatorConfig* config,
                const std::string& settings) {
  // Theirs first: what torch refuses must fail with torch's own error.
  config->parseArgs(settings);
  apply(settings);
}

}  // namespace

std::string environment_config() {
  const char* npu = std::getenv("PYTORCH_NPU_ALLOC_CONF");
  const char* generic = std::getenv("PYTORCH_ALLOC_CONF");
  if (npu != nullptr) return npu;
  return generic != nullptr ? generic : "";
}

void follow_settings() {
  if (redirect_import("libtorch_npu.so", kParseArgs, reinterpret_cast<void*>(&parse_args)) ==
      nullptr) {
    TORCH_WARN(
        "npualloc: this torch_npu passes its settings another way; _set_allocator_settings will "
        "not "
        "reach the allocator");
  }
}

bool force_uncached() {
  static const bool uncached = [] {
    const char* text = std::getenv("PYTORCH_NO_NPU_MEMORY_CACHING");
    const long value = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
    TORCH_CHECK(value == 0 || value == 1, "PYTORCH_NO_NPU_MEMORY_CACHING should be 0 or 1.",
                PTA_ERROR(ErrCode::VALUE));
    return value == 1;
  }();
  return uncached;
}

}  // namespace npualloc::torch_npu_plugin
