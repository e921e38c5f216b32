#include "wheel.h"

#include <dlfcn.h>

#include "../allocator/npu_allocator.h"
#include "../allocator/settings.h"
#include "../host.h"
#include "got_hook.h"
#include "log.h"
#include "profiler.h"
#include "recovery.h"
#include "waits.h"

namespace npualloc::torch_npu_plugin {

namespace {

// AcceleratorAllocatorConfig::parseArgs(std::string const&): torch_npu hands every settings text,
// the environment's included, to this function of libc10 after it has checked the keys, and keeps
// the rest to itself. So this import is where settings can be seen from outside the wheel.
constexpr const char* kParseArgs =
    "_ZN3c1016CachingAllocator26AcceleratorAllocatorConfig9parseArgsERKNSt7__cxx1112basic_"
    "stringIcSt11"
    "char_traitsIcESaIcEEE";

stock::NPUAllocator* wheel = nullptr;

void parse_args(c10::CachingAllocator::AcceleratorAllocatorConfig* config,
                const std::string& settings) {
  // Theirs first: what torch refuses must fail with torch's own error.
  config->parseArgs(settings);
  // When torch_npu first looks at its settings, the environment's text comes by. The core starts
  // with it.
  static std::atomic<bool> first{true};
  if (first.exchange(false) && settings == environment_config()) return;
  NpuAllocator* allocator = the_allocator.load(std::memory_order_acquire);
  if (allocator != nullptr) allocator->apply_settings(settings);
}

}  // namespace

void meet_wheel(stock::NPUAllocator* allocator) { wheel = allocator; }

void follow_wheel() {
  follow_profiler();
  follow_waits();
  if (redirect_import("libtorch_npu.so", kParseArgs, reinterpret_cast<void*>(&parse_args)) ==
      nullptr) {
    TORCH_WARN(
        "npualloc: this torch_npu passes its settings another way; _set_allocator_settings will "
        "not "
        "reach the allocator");
  }
}

namespace host {

void read_settings() {
  // An empty text makes torch_npu read the environment and has no effect itself.
  c10::CachingAllocator::AcceleratorAllocatorConfig::callDeviceConfigParserHook("");
}

// The wheel's allocator releases operator workspaces for us, for which it must know its devices.
void init(int device_count) { wheel->init(device_count); }

// Operator workspaces belong to an allocator the wheel hides. Its own caching allocator, idle here,
// returns them when it is told to empty its cache.
void release_workspaces(int device, bool check_error) {
  if (check_error) {
    wheel->FreeDeviceCachedMemory(device);
  } else {
    // Only this way are failures warnings; it covers all devices, which does no harm.
    wheel->emptyCache(false);
  }
}

std::vector<aclrtMemUceInfo> bad_ranges(int) { return recovery::known_ranges(); }

void found_damage(int device, const std::vector<aclrtMemUceInfo>& ranges) {
  if (!ranges.empty()) {
    recovery::set_unsafe();
  } else {
    // The wheel's own allocator is idle: it finds none of the ranges in its blocks and drops them.
    wheel->checkUceInMemPool(device);
  }
}

bool log_wanted(int level) { return torch_npu_log_wanted(level); }

void log(int level, const std::string& text) { write_to_torch_npu_log(level, text); }

void report_memory(const MemoryReport& report) { report_to_wheel_profiler(report); }

// Never called: the sanitizer is hidden in the wheel.
void trace_allocation(std::uintptr_t) {}
void trace_deallocation(std::uintptr_t) {}
void trace_record_stream(std::uintptr_t, aclrtStream) {}
void trace_erase_stream(std::uintptr_t, aclrtStream) {}

}  // namespace host
}  // namespace npualloc::torch_npu_plugin
