#include "../host.h"

#include <algorithm>

#include "../reports/reports.h"
#include "torch_npu/csrc/core/npu/NPUAllocatorConfig.h"
#include "torch_npu/csrc/core/npu/NPURecovery.h"
#include "torch_npu/csrc/core/npu/NPUWorkspaceAllocator.h"
#ifndef BUILD_LIBTORCH
#include "torch_npu/csrc/profiler/npu_profiler.h"
#include "torch_npu/csrc/sanitizer/NPUTrace.h"
#endif

namespace npualloc::torch_npu_plugin::host {

void read_settings() { c10_npu::NPUCachingAllocator::NPUAllocatorConfig::instance(); }

// libtorch's build of torch_npu has neither the profiler nor the sanitizer.
void init(int) {
#ifndef BUILD_LIBTORCH
  reports::switches.profiler.store(
      &torch_npu::profiler::ProfilerMgr::GetInstance()->ReportMemEnable());
  reports::switches.sanitizer.store(&c10_npu::impl::NPUTrace::have_state);
#endif
}

void release_workspaces(int device, bool check_error) {
  c10_npu::NPUWorkspaceAllocator::emptyCache(device, check_error);
}

// torch_npu keeps what it learnt when the error came up.
std::vector<aclrtMemUceInfo> bad_ranges(int) {
  const auto& known = c10_npu::get_mem_uce_info();
  return {known.info, known.info + known.retSize};
}

void found_damage(int, const std::vector<aclrtMemUceInfo>& ranges) {
  // What lies in blocks is repaired through them; the rest is nobody's.
  auto known = c10_npu::get_mem_uce_info();
  known.retSize = ranges.size();
  std::copy(ranges.begin(), ranges.end(), known.info);
  c10_npu::set_mem_uce_info(known);
  if (!ranges.empty() && !c10_npu::get_npu_data_unsafe_flag()) {
    c10_npu::set_npu_data_unsafe_flag(true);
  }
}

bool log_wanted(int level) {
  const auto device = level >= 40   ? ACL_ERROR
                      : level >= 30 ? ACL_WARNING
                      : level >= 20 ? ACL_INFO
                                    : ACL_DEBUG;
  return static_cast<int>(GetLoggerMem()->getAllowLevel()) <= level ||
         c10_npu::option::OptionsManager::isACLGlobalLogOn(device);
}

void log(int level, const std::string& text) {
  if (level >= 40) {
    TORCH_NPU_MEMORY_LOGE("%s", text.c_str());
  } else if (level >= 30) {
    TORCH_NPU_MEMORY_LOGW("%s", text.c_str());
  } else if (level >= 20) {
    TORCH_NPU_MEMORY_LOGI("%s", text.c_str());
  } else {
    TORCH_NPU_MEMORY_LOGD("%s", text.c_str());
  }
}

#ifndef BUILD_LIBTORCH

void report_memory(const MemoryReport& report) {
  using torch_npu::profiler::MemoryAllocatorType;
  using torch_npu::profiler::MemoryComponentType;
  using torch_npu::profiler::MemoryDataType;
  constexpr MemoryDataType kTypes[] = {MemoryDataType::MEMORY_MALLOC, MemoryDataType::MEMORY_FREE,
                                       MemoryDataType::MEMORY_BLOCK_FREE};
  torch_npu::profiler::MemoryUsage usage;
  usage.device_type = static_cast<std::int8_t>(c10::DeviceType::PrivateUse1);
  usage.device_index = static_cast<std::int8_t>(report.device);
  usage.component_type = static_cast<std::uint8_t>(MemoryComponentType::CACHING_ALLOCATOR);
  usage.data_type = static_cast<std::uint8_t>(kTypes[static_cast<int>(report.kind)]);
  usage.allocator_type =
      static_cast<std::uint8_t>(report.external ? MemoryAllocatorType::ALLOCATOR_EXTERNAL
                                                : MemoryAllocatorType::ALLOCATOR_INNER);
  usage.ptr = static_cast<std::int64_t>(report.addr);
  usage.alloc_size = report.size;
  usage.total_allocated = report.total_allocated;
  usage.total_reserved = report.total_reserved;
  usage.total_active = report.total_active;
  usage.stream = reinterpret_cast<aclrtStream>(report.stream);
  torch_npu::profiler::reportMemoryDataToNpuProfiler(usage);
}

void trace_allocation(std::uintptr_t addr) {
  if (const auto* trace = c10_npu::impl::NPUTrace::getTrace())
    trace->traceNpuMemoryAllocation(addr);
}

void trace_deallocation(std::uintptr_t addr) {
  if (const auto* trace = c10_npu::impl::NPUTrace::getTrace()) {
    trace->traceNpuMemoryDeallocation(addr);
  }
}

void trace_record_stream(std::uintptr_t addr, aclrtStream stream) {
  if (const auto* trace = c10_npu::impl::NPUTrace::getTrace()) {
    trace->traceNpuRecordStream(addr, reinterpret_cast<std::uintptr_t>(stream));
  }
}

void trace_erase_stream(std::uintptr_t addr, aclrtStream stream) {
  if (const auto* trace = c10_npu::impl::NPUTrace::getTrace()) {
    trace->traceNpuEraseStream(addr, reinterpret_cast<std::uintptr_t>(stream));
  }
}

#else

void report_memory(const MemoryReport&) {}
void trace_allocation(std::uintptr_t) {}
void trace_deallocation(std::uintptr_t) {}
void trace_record_stream(std::uintptr_t, aclrtStream) {}
void trace_erase_stream(std::uintptr_t, aclrtStream) {}

#endif

}  // namespace npualloc::torch_npu_plugin::host
