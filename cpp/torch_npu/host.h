// What a torch_npu source tree has and the stock wheel keeps to itself. The plug-in finds its way
// around (wheel/wheel.cpp), a fork calls its own functions (fork/host.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pch.h"

namespace npualloc::torch_npu_plugin::host {

// Makes torch_npu read the environment's settings. Throws its own error when it does not accept
// them.
void read_settings();

// Called once the core has its devices.
void init(int device_count);

// Gives back what the operator workspaces hold idle on the current device.
void release_workspaces(int device, bool check_error);

// The ranges of the device's memory that torch_npu's recovery knows to be bad.
std::vector<aclrtMemUceInfo> bad_ranges(int device);

// Tells it which of them lie in blocks: if there are any, it checks copies from now on; if there
// are none, it forgets the ranges.
void found_damage(int device, const std::vector<aclrtMemUceInfo>& ranges);

// torch_npu's logger of memory (TORCH_NPU_LOGS=memory) and the device's log. Levels are Python's:
// 10, 20, 30, 40.
inline constexpr int kLogInfo = 20;
inline constexpr int kLogError = 40;
bool log_wanted(int level);
void log(int level, const std::string& text);

// One line of the profiler's memory record; sizes in bytes.
struct MemoryReport {
  enum class Kind { Malloc, Free, BlockFree };
  Kind kind;
  bool external;  // From MallocBlock or to FreeBlock.
  int device;
  std::uintptr_t addr;
  std::int64_t size;  // Negative for frees.
  std::int64_t total_allocated;
  std::int64_t total_reserved;
  std::int64_t total_active;
  std::uintptr_t stream;
};

// Only called while torch_npu's profiler records memory (Switches in reports.h).
void report_memory(const MemoryReport& report);

// Only called while torch_npu's sanitizer is active (Switches in reports.h).
void trace_allocation(std::uintptr_t addr);
void trace_deallocation(std::uintptr_t addr);
void trace_record_stream(std::uintptr_t addr, aclrtStream stream);
void trace_erase_stream(std::uintptr_t addr, aclrtStream stream);

}  // namespace npualloc::torch_npu_plugin::host
