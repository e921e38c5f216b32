// The wheel hides its profiler's manager, but not the class that writes the records, which lives in
// libnpu_profiler.so. The manager has two of them as members; it initialises both when it starts,
// through an import that can be redirected. From their addresses follows the manager's.
#include "profiler.h"

#include <dlfcn.h>

#include <cstddef>
#include <mutex>

#include "../reports/reports.h"
#include "got_hook.h"
#include "torch_npu/csrc/profiler/profiler_mgr.h"
#include "torch_npu/csrc/toolkit/profiler/common/utils.h"
#include "torch_npu/csrc/toolkit/profiler/inc/data_reporter.h"

namespace npualloc::torch_npu_plugin {

namespace {

using torch_npu::profiler::ProfilerMgr;
using torch_npu::toolkit::profiler::DataDumper;
using torch_npu::toolkit::profiler::MemoryData;
using torch_npu::toolkit::profiler::Utils;

// torch_npu::toolkit::profiler::DataDumper::Init(std::string const&, unsigned long)
constexpr const char* kInit =
    "_ZN9torch_npu7toolkit8profiler10DataDumper4InitERKNSt7__cxx1112basic_"
    "stringIcSt11char_traitsIcESaIcEEEm";

// The manager's private members. Naming them in an explicit instantiation is allowed; so a
// torch_npu with another layout is followed, and one with other members does not compile.
template <auto First, auto Second, auto Mutex, auto Warmup>
struct Members {
  friend DataDumper ProfilerMgr::*first_dumper() { return First; }
  friend DataDumper ProfilerMgr::*locked_dumper() { return Second; }
  friend std::mutex ProfilerMgr::*report_mutex() { return Mutex; }
  friend std::atomic<bool> ProfilerMgr::*warming_up() { return Warmup; }
};
DataDumper ProfilerMgr::*first_dumper();
DataDumper ProfilerMgr::*locked_dumper();
std::mutex ProfilerMgr::*report_mutex();
std::atomic<bool> ProfilerMgr::*warming_up();
template struct Members<&ProfilerMgr::dataReceiver_, &ProfilerMgr::dataReceiverWithLock_,
                        &ProfilerMgr::reportDataMutex_, &ProfilerMgr::enable_warmup_>;

std::atomic<ProfilerMgr*> manager{nullptr};
bool uses_cycle_counter = false;

std::ptrdiff_t offset(DataDumper ProfilerMgr::*member) {
  alignas(ProfilerMgr) static char space[sizeof(ProfilerMgr)];
  auto* object = reinterpret_cast<ProfilerMgr*>(space);
  return reinterpret_cast<char*>(&(object->*member)) - space;
}

// Which clock the profiler's other records have, as torch_npu tells Python. False without Python.
bool ask_for_cycle_counter() {
  const auto find = [](const char* name) { return dlsym(RTLD_DEFAULT, name); };
  const auto ensure = reinterpret_cast<int (*)()>(find("PyGILState_Ensure"));
  const auto release = reinterpret_cast<void (*)(int)>(find("PyGILState_Release"));
  const auto import = reinterpret_cast<void* (*)(const char*)>(find("PyImport_ImportModule"));
  const auto call = reinterpret_cast<void* (*)(void*, const char*, const char*, ...)>(
      find("PyObject_CallMethod"));
  const auto truth = reinterpret_cast<int (*)(void*)>(find("PyObject_IsTrue"));
  const auto drop = reinterpret_cast<void (*)(void*)>(find("Py_DecRef"));
  const auto clear = reinterpret_cast<void (*)()>(find("PyErr_Clear"));
  if (!ensure || !release || !import || !call || !truth || !drop || !clear) return false;
  const int state = ensure();
  void* module = import("torch_npu._C._profiler");
  void* answer = module == nullptr ? nullptr : call(module, "_get_syscnt_enable", nullptr);
  const bool yes = answer != nullptr && truth(answer) == 1;
  if (answer == nullptr) clear();
  drop(answer);
  drop(module);
  release(state);
  return yes;
}

void init_dumper(DataDumper* dumper, const std::string& path, std::size_t capacity) {
  static std::mutex mutex;
  static DataDumper* previous = nullptr;
  dumper->Init(path, capacity);
  if (manager.load(std::memory_order_acquire) != nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex);
  const std::ptrdiff_t distance = offset(locked_dumper()) - offset(first_dumper());
  if (previous != nullptr &&
      reinterpret_cast<char*>(dumper) - reinterpret_cast<char*>(previous) == distance) {
    auto* found =
        reinterpret_cast<ProfilerMgr*>(reinterpret_cast<char*>(dumper) - offset(locked_dumper()));
    uses_cycle_counter = ask_for_cycle_counter();
    manager.store(found, std::memory_order_release);
    // Set by the manager once its writers are ready.
    reports::switches.profiler.store(&found->ReportMemEnable(), std::memory_order_release);
  }
  previous = dumper;
}

std::int64_t stream_id(aclrtStream stream) {
  using Function = aclError (*)(aclrtStream, std::int32_t*);
  static const auto function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "aclrtStreamGetId"));
  if (function == nullptr) return reinterpret_cast<std::int64_t>(stream);
  std::int32_t id = 0;
  return function(stream, &id) == ACL_ERROR_NONE ? id : -1;
}

}  // namespace

void follow_profiler() {
  if (redirect_import("libtorch_npu.so", kInit, reinterpret_cast<void*>(&init_dumper)) == nullptr) {
    TORCH_WARN("npualloc: this torch_npu's profiler works another way; it will not hear of memory");
  }
}

void report_to_wheel_profiler(const host::MemoryReport& report) {
  ProfilerMgr* found = manager.load(std::memory_order_acquire);
  if (found == nullptr || (found->*warming_up()).load()) return;
  constexpr int kTypes[] = {0, 1, 2};  // Allocated, freed, free completed.
  const auto time = static_cast<std::int64_t>(uses_cycle_counter ? Utils::getClockSyscnt()
                                                                 : Utils::GetClockMonotonicRawNs());
  auto data = std::make_unique<MemoryData>(
      static_cast<std::int64_t>(report.addr), time, report.size, report.total_allocated,
      report.total_reserved, report.total_active,
      stream_id(reinterpret_cast<aclrtStream>(report.stream)),
      static_cast<std::int8_t>(c10::DeviceType::PrivateUse1),
      static_cast<std::int8_t>(report.device), /*component_type=*/0,
      static_cast<std::uint8_t>(kTypes[static_cast<int>(report.kind)]),
      static_cast<std::uint8_t>(report.external), Utils::GetTid(), Utils::GetPid());
  const std::lock_guard<std::mutex> lock(found->*report_mutex());
  (found->*locked_dumper()).Report(std::move(data));
}

}  // namespace npualloc::torch_npu_plugin
