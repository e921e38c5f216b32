// Local definitions of functions that torch_npu's headers call and its library does not export.
// They are hidden: the wheel keeps using its own.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <iomanip>
#include <sstream>
#include <string_view>

#include "../driver/soc.h"
#include "../pch.h"

namespace {

const char* submodule_name(SubModule module) {
  switch (module) {
    case SubModule::PTA:
      return "PTA";
    case SubModule::OPS:
      return "OPS";
    case SubModule::DIST:
      return "DIST";
    case SubModule::GRAPH:
      return "GRAPH";
    case SubModule::PROF:
      return "PROF";
  }
  return "";
}

const char* error_name(ErrCode code) {
  switch (code) {
    case ErrCode::SUC:
      return "success";
    case ErrCode::PARAM:
      return "invalid parameter";
    case ErrCode::TYPE:
      return "invalid type";
    case ErrCode::VALUE:
      return "invalid value";
    case ErrCode::PTR:
      return "invalid pointer";
    case ErrCode::INTERNAL:
      return "internal error";
    case ErrCode::MEMORY:
      return "memory error";
    case ErrCode::NOT_SUPPORT:
      return "feature not supported";
    case ErrCode::NOT_FOUND:
      return "resource not found";
    case ErrCode::UNAVAIL:
      return "resource unavailable";
    case ErrCode::SYSCALL:
      return "system call failed";
    case ErrCode::TIMEOUT:
      return "timeout error";
    case ErrCode::PERMISSION:
      return "permission error";
    case ErrCode::ACL:
      return "call acl api failed";
    case ErrCode::HCCL:
      return "call hccl api failed";
    case ErrCode::GE:
      return "call ge api failed";
  }
  return "";
}

long env_number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::strtol(text, nullptr, 10);
}

}  // namespace

// The line torch_npu appends to its error texts.
std::string formatErrorCode(SubModule submodule, ErrCode code) {
  if (c10_npu::option::OptionsManager::IsCompactErrorOutput()) return "";
  int device = -1;
  try {
    (void)c10_npu::GetDevice(&device);
  } catch (...) {
    // The device in the text is a help, not worth a second failure.
  }
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::ostringstream text;
  text << "\n[ERROR] " << std::put_time(&local, "%Y-%m-%d-%H:%M:%S") << " (PID:" << getpid()
       << ", Device:" << device << ", RankID:" << c10_npu::option::OptionsManager::GetRankId()
       << ") ERR" << std::setfill('0') << std::setw(2) << static_cast<int>(submodule)
       << std::setw(3) << static_cast<int>(code) << ' ' << submodule_name(submodule) << ' '
       << error_name(code);
  return text.str();
}

namespace c10_npu {

namespace {

// When the runtime says that an ECC error happened, for scripts that read it out of the text.
std::string ecc_error() {
  const std::string said = c10_npu_get_error_message();
  constexpr std::string_view kTime = "time us= ";
  std::string time;
  for (std::size_t at = said.find(kTime); at != std::string::npos; at = said.find(kTime, at + 1)) {
    const std::size_t first = at + kTime.size();
    const std::size_t end = said.find_first_not_of("0123456789", first);
    if (end == std::string::npos || end == first || said[end] != '.') continue;
    time = said.substr(first, end - first);
    break;
  }
  return "HBM MULTI BIT ECC ERROR." + said + "time is " + time;
}

}  // namespace

// Scripts that recover from faults look for these words. The wheel's version also notes the failed
// memory ranges for its recovery functions, which can't be reached from here; those come up again
// at the next synchronisation, which is the wheel's own call.
std::string getDeviceErrorMessage(int code) {
  switch (code) {
    case ACL_ERROR_RT_DEVICE_TASK_ABORT:
      return "FORCE STOP";
    case ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR:
      return ecc_error();
    case ACL_ERROR_RT_DEVICE_MEM_ERROR:
      return "UCE ERROR";
    case ACL_ERROR_RT_SUSPECT_DEVICE_MEM_ERROR:
      return "SUSPECT MEM ERROR";
    case ACL_ERROR_RT_LINK_ERROR:
      return npualloc::torch_npu_plugin::is_ascend950_or_later(
                 npualloc::torch_npu_plugin::soc_name())
                 ? "UB LINK ERROR"
                 : "HCCS LINK ERROR";
    case ACL_ERROR_RT_COMM_OP_RETRY_FAIL:
      return "HCCL OP RETRY FAILED";
    case ACL_ERROR_RT_SUSPECT_REMOTE_ERROR:
      return "SUSPECT REMOTE ERROR";
    default:
      return "";
  }
}

bool isCannOOM(const std::string& message) {
  return message.find("EL0004") != std::string::npos ||
         message.find("Failed to allocate") != std::string::npos;
}

namespace acl {

aclError AclrtPeekAtLastError(aclrtLastErrLevel level) {
  using Function = aclError (*)(aclrtLastErrLevel);
  static const auto function =
      reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "aclrtPeekAtLastError"));
  return function == nullptr ? ACL_ERROR_NONE : function(level);
}

}  // namespace acl

namespace option {

bool OptionsManager::IsCompactErrorOutput() {
  static const bool compact = env_number("TORCH_NPU_COMPACT_ERROR_OUTPUT") != 0;
  return compact;
}

// Only asked where a driver call failed in a way the driver itself calls out of memory; such
// failures reach the observers through the allocator.
bool OptionsManager::IsOomSnapshotEnable() { return false; }

void oom_observer(int64_t, int64_t, int64_t, int64_t) {}

}  // namespace option
}  // namespace c10_npu
