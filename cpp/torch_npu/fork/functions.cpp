// The free functions that NPUCachingAllocator.h declares.
#include <ctime>
#include <fstream>
#include <iomanip>
#include <sstream>

#include "../allocator/npu_allocator.h"
#include "torch_npu/csrc/core/npu/NPUAllocatorConfig.h"
#include "torch_npu/csrc/core/npu/interface/AclInterface.h"

std::string format_size(uint64_t size) {
  constexpr std::uint64_t kKiB = 1024;
  constexpr std::uint64_t kMiB = 1024 * kKiB;
  constexpr std::uint64_t kGiB = 1024 * kMiB;
  std::ostringstream text;
  text << std::fixed << std::setprecision(2);
  if (size <= kKiB) {
    text << size << " bytes";
  } else if (size <= kMiB) {
    text << static_cast<double>(size) / kKiB << " KiB";
  } else if (size <= kGiB) {
    text << static_cast<double>(size) / kMiB << " MiB";
  } else {
    text << static_cast<double>(size) / kGiB << " GiB";
  }
  return text.str();
}

namespace c10_npu::NPUCachingAllocator {

bool checkConfigExpandableSegments() { return NPUAllocatorConfig::expandable_segments(); }

bool isConfig1GPageSizeEnable() { return NPUAllocatorConfig::page_size_1g_enable(); }

void setAllocatorSettings(const std::string& settings) {
  TORCH_NPU_MEMORY_LOGI("setAllocatorSettings: %s.", settings.c_str());
  // Work that was submitted under the old settings allocates under them.
  const NPUStatus drained = c10_npu::emptyAllNPUStream();
  TORCH_CHECK(drained == NPU_STATUS_SUCCESS, "Failed to empty NPU task queue, ret:", drained,
              PTA_ERROR(ErrCode::INTERNAL));
  // Theirs first: what torch_npu refuses must fail with its own error.
  NPUAllocatorConfig::instance().parseArgs(
      settings,
      {"expandable_segments", "max_split_size_mb", "max_non_split_rounding_mb",
       "release_lock_on_npumalloc", "throw_on_npumalloc_oom", "per_process_memory_fraction",
       "pinned_max_round_threshold_mb", "pinned_max_cached_size_mb"});
  npualloc::torch_npu_plugin::the_allocator.load()->apply_settings(settings);
}

// A CSV file in the directory of out-of-memory snapshots: what each module of CANN holds, in MB.
bool saveDevMemUsageInfo(const int& device) {
  constexpr std::size_t kMaxModules = 128;
  constexpr double kMB = 1024.0 * 1024.0;
  std::vector<aclrtMemUsageInfo> modules(kMaxModules);
  std::size_t count = 0;
  const aclError code = c10_npu::acl::AclrtGetMemUsageInfo(static_cast<std::uint32_t>(device),
                                                           modules.data(), modules.size(), &count);
  if (code != ACL_ERROR_NONE) {
    TORCH_NPU_MEMORY_LOGE("AclrtGetMemUsageInfo failed, ret:%d", code);
    return false;
  }
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::ostringstream path;
  path << c10_npu::option::OptionsManager::GetOomSnapshotDumpPath() << "/device_" << device
       << "_memUsageInfo_" << std::put_time(&local, "%Y%m%d%H%M%S") << ".csv";
  std::ofstream file(path.str());
  if (!file.is_open()) {
    TORCH_NPU_MEMORY_LOGE("Failed to open file: %s", path.str().c_str());
    return false;
  }
  file << "moduleName,curMemSize(MB),memPeakSize(MB)\n" << std::fixed << std::setprecision(4);
  for (std::size_t i = 0; i < std::min(count, modules.size()); ++i) {
    file << modules[i].name << ',' << static_cast<double>(modules[i].curMemSize) / kMB << ','
         << static_cast<double>(modules[i].memPeakSize) / kMB << '\n';
  }
  if (count > modules.size()) {
    TORCH_NPU_MEMORY_LOGW("The number of modules exceeds the maximum limit: %zu > %zu", count,
                          modules.size());
  }
  TORCH_NPU_MEMORY_LOGI("Device memory usage information saved to file: %s", path.str().c_str());
  return true;
}

}  // namespace c10_npu::NPUCachingAllocator
