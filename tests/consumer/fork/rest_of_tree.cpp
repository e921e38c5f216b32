// Stands for the other files of a torch_npu tree: what symbols.txt says is needed from them. Most
// of it does nothing; what npualloc tells them is kept for run.py, which reads it through the C
// functions at the end.
#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "torch_npu/csrc/core/npu/NPUAllocatorConfig.h"
#include "torch_npu/csrc/core/npu/NPUBlockHandle.h"
#include "torch_npu/csrc/core/npu/NPUCachingAllocator.h"
#include "torch_npu/csrc/core/npu/NPURecovery.h"
#include "torch_npu/csrc/core/npu/NPUWorkspaceAllocator.h"
#include "torch_npu/csrc/core/npu/interface/AclInterface.h"
#include "torch_npu/csrc/profiler/npu_profiler.h"
#include "torch_npu/csrc/sanitizer/NPUTrace.h"

namespace {

std::mutex mutex;
std::vector<torch_npu::profiler::MemoryUsage> memory_reports;
c10_npu::MemUceInfo bad_memory;
int queue_drains = 0;
NPUStatus queue_status = NPU_STATUS_SUCCESS;
int workspace_releases = 0;
int workspace_device = -1;
std::size_t module_count = 2;
bool pages_of_1g = false;
npu_logging::LoggingLevel log_level = npu_logging::LoggingLevel::CRITICAL;
int info_lines = 0;
int free_callback_runs = 0;

class CountingCallback : public c10_npu::NPUCachingAllocator::FreeMemoryCallback {
 public:
  bool Execute() override {
    ++free_callback_runs;
    return false;
  }
};

}  // namespace

// logging/Logger.cpp
namespace npu_logging {
LoggingLevel Logger::getAllowLevel() { return log_level; }
void Logger::debug(const char*, uint32_t, const char*, ...) {}
void Logger::info(const char*, uint32_t, const char*, ...) { ++info_lines; }
void Logger::warn(const char*, uint32_t, const char*, ...) {}
void Logger::error(const char*, uint32_t, const char*, ...) {}
}  // namespace npu_logging

// core/npu/NPUException.cpp
std::string formatErrorCode(SubModule, ErrCode) { return ""; }

namespace c10_npu {

std::string getDeviceErrorMessage(int) { return ""; }
bool isCannOOM(const std::string&) { return false; }
void set_mem_uce_info(MemUceInfo& info) { bad_memory = info; }
MemUceInfo get_mem_uce_info() { return bad_memory; }

// core/npu/NPURecovery.cpp
void set_npu_data_unsafe_flag(bool) {}

// core/npu/NPUStream.cpp
NPUStatus emptyAllNPUStream(bool) {
  ++queue_drains;
  return queue_status;
}

namespace NPUWorkspaceAllocator {
void emptyCache(int device, bool) {
  ++workspace_releases;
  workspace_device = device;
}
}  // namespace NPUWorkspaceAllocator

// core/npu/interface/AclInterface.cpp
namespace acl {

aclError AclrtPeekAtLastError(aclrtLastErrLevel) { return ACL_ERROR_NONE; }

aclError AclrtGetMemUsageInfo(uint32_t device, aclrtMemUsageInfo* modules, size_t room,
                              size_t* count) {
  if (device != 0 || room < 2) return ACL_ERROR_INVALID_PARAM;
  for (size_t at = 2; at < std::min(module_count, room); ++at) modules[at] = {"OTHER", 0, 0, {}};
  modules[0] = {"RUNTIME", 3 << 20, 4 << 20, {}};
  modules[1] = {"HCCL", 1 << 19, 1 << 20, {}};
  *count = module_count;
  return ACL_ERROR_NONE;
}

}  // namespace acl

// core/npu/register/OptionsManager.cpp
namespace option {

bool OptionsManager::IsOomSnapshotEnable() { return false; }
bool OptionsManager::IsCompactErrorOutput() { return true; }
std::string OptionsManager::GetOomSnapshotDumpPath() {
  const char* path = std::getenv("DUMP_PATH");
  return path == nullptr ? "." : path;
}
void oom_observer(int64_t, int64_t, int64_t, int64_t) {}

}  // namespace option

namespace NPUCachingAllocator {

REGISTER_FREE_MEMORY_CALLBACK("counting", CountingCallback)

// core/npu/NPUAllocatorConfig.cpp
NPUAllocatorConfig& NPUAllocatorConfig::instance() {
  static NPUAllocatorConfig config;
  config.m_page_size_1g = pages_of_1g;
  return config;
}
void NPUAllocatorConfig::parseArgs(const std::string& text, std::set<std::string> supported) {
  TORCH_CHECK(supported.count(text.substr(0, text.find(':'))) == 1,
              "not a run-time setting: ", text);
  c10::CachingAllocator::AcceleratorAllocatorConfig::instance().parseArgs(text);
}

}  // namespace NPUCachingAllocator

// sanitizer/NPUTrace.cpp
namespace impl {
std::atomic<const PyCallbackTrigger*> NPUTrace::npu_trace_state{nullptr};
bool NPUTrace::have_state{false};
}  // namespace impl

}  // namespace c10_npu

// profiler/
namespace torch_npu::profiler {

ProfilerMgr::ProfilerMgr() : profile_memory_(false) {}
ProfilerMgr* ProfilerMgr::GetInstance() {
  static ProfilerMgr instance;
  return &instance;
}
void reportMemoryDataToNpuProfiler(const MemoryUsage& data) {
  const std::lock_guard<std::mutex> lock(mutex);
  memory_reports.push_back(data);
}

}  // namespace torch_npu::profiler

#define TEST_FUNCTION extern "C" __attribute__((visibility("default")))

TEST_FUNCTION void tree_profile_memory(int on) {
  torch_npu::profiler::ProfilerMgr::GetInstance()->ReportMemEnable().store(on != 0);
}

TEST_FUNCTION void tree_activate_sanitizer() {
  c10_npu::impl::NPUTrace::npu_trace_state.store(c10_npu::impl::PyCallbackTrigger::instance(0));
  c10_npu::impl::NPUTrace::have_state = true;
}

// The oldest report that was not taken yet, as numbers; 0 when there is none.
TEST_FUNCTION int tree_take_report(int64_t* values) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (memory_reports.empty()) return 0;
  const auto& report = memory_reports.front();
  const int64_t fields[] = {report.data_type,
                            report.allocator_type,
                            report.component_type,
                            report.device_index,
                            report.ptr,
                            report.alloc_size,
                            report.total_allocated,
                            report.total_reserved,
                            report.total_active,
                            reinterpret_cast<int64_t>(report.stream)};
  std::copy(std::begin(fields), std::end(fields), values);
  memory_reports.erase(memory_reports.begin());
  return 1;
}

TEST_FUNCTION int tree_queue_drains() { return queue_drains; }
TEST_FUNCTION void tree_set_queue_status(int status) { queue_status = status; }
TEST_FUNCTION int tree_workspace_releases() { return workspace_releases; }
TEST_FUNCTION int tree_workspace_device() { return workspace_device; }
TEST_FUNCTION void tree_set_module_count(int count) { module_count = count; }
TEST_FUNCTION void tree_set_log_level(int level) {
  log_level = static_cast<npu_logging::LoggingLevel>(level);
}
TEST_FUNCTION int tree_info_lines() { return info_lines; }
TEST_FUNCTION void tree_set_page_size_1g(int on) { pages_of_1g = on != 0; }
// Two ranges are bad.
TEST_FUNCTION void tree_set_bad_memory(void* first, void* second, size_t size) {
  bad_memory.info[0] = {first, size, {}};
  bad_memory.info[1] = {second, size, {}};
  bad_memory.retSize = 2;
}
TEST_FUNCTION int tree_check_damage(int device) {
  return c10_npu::NPUCachingAllocator::checkUceInMemPool(device);
}
// How many ranges are known to be bad; where the first one is.
TEST_FUNCTION int tree_bad_memory(void** first) {
  *first = bad_memory.info[0].addr;
  return static_cast<int>(bad_memory.retSize);
}
TEST_FUNCTION int tree_free_callback_runs() { return free_callback_runs; }

// The hidden ones of symbols.txt, as other files of a tree call them.
TEST_FUNCTION int tree_expandable_segments() {
  return c10_npu::NPUCachingAllocator::checkConfigExpandableSegments();
}
TEST_FUNCTION int tree_page_size_1g() {
  return c10_npu::NPUCachingAllocator::isConfig1GPageSizeEnable();
}
TEST_FUNCTION const char* tree_format_size(uint64_t size) {
  static thread_local std::string text;
  text = format_size(size);
  return text.c_str();
}
// The text of the exception, or null.
template <typename Call>
const char* refusal(Call call) {
  static thread_local std::string text;
  try {
    call();
    return nullptr;
  } catch (const c10::Error& error) {
    text = error.what_without_backtrace();
    return text.c_str();
  }
}
TEST_FUNCTION const char* tree_set_settings(const char* settings) {
  return refusal([&] { c10_npu::NPUCachingAllocator::setAllocatorSettings(settings); });
}
TEST_FUNCTION const char* tree_free_block(void* handle) {
  return refusal([&] { c10_npu::NPUCachingAllocator::FreeBlock(handle); });
}
TEST_FUNCTION const char* tree_look_at_block(const void* handle) {
  return refusal([&] { (void)c10_npu::NPUCachingAllocator::GetBlockPtr(handle); });
}
TEST_FUNCTION int tree_save_memory_usage(int device) {
  return c10_npu::NPUCachingAllocator::saveDevMemUsageInfo(device);
}
