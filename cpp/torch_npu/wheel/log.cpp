// The wheel exports where its loggers are kept, with their levels, and its filter of lines, but not
// the functions of a logger. Lines have the shape of its own.
#include "log.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>

#include "../pch.h"

// Hidden in the wheel; the member is where its header says.
npu_logging::LoggingLevel npu_logging::Logger::getAllowLevel() { return allow_level_; }

namespace npualloc::torch_npu_plugin {

namespace {

int acl_level(int level) {
  if (level >= 40) return ACL_ERROR;
  if (level >= 30) return ACL_WARNING;
  return level >= 20 ? ACL_INFO : ACL_DEBUG;
}

bool device_log_wanted(int level) {
  return c10_npu::option::OptionsManager::isACLGlobalLogOn(
      static_cast<aclLogLevel>(acl_level(level)));
}

bool logger_wants(int level) { return static_cast<int>(GetLoggerMem()->getAllowLevel()) <= level; }

std::string prefix(int level) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm local{};
  localtime_r(&now.tv_sec, &local);
  char text[128];
  const char letter = level >= 40 ? 'E' : level >= 30 ? 'W' : level >= 20 ? 'I' : 'V';
  std::snprintf(text, sizeof(text), "%c%02d%02d %02d:%02d:%02d.%06ld %d] ", letter,
                local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec,
                now.tv_nsec / 1000, getpid());
  const char* rank = std::getenv("RANK");
  return rank == nullptr ? text : std::string(text) + "[rank:" + rank + "] ";
}

}  // namespace

bool torch_npu_log_wanted(int level) { return logger_wants(level) || device_log_wanted(level); }

void write_to_torch_npu_log(int level, const std::string& text) {
  if (logger_wants(level)) {
    const std::string line = prefix(level) + text + '\n';
    // In one piece: other threads write too.
    if (npu_logging::should_log(line)) std::cerr.write(line.data(), line.size()).flush();
  }
  if (device_log_wanted(level)) {
    aclAppLog(static_cast<aclLogLevel>(acl_level(level)), __FILE__, __FUNCTION__, __LINE__,
              "[PTA]:%s", text.c_str());
  }
}

}  // namespace npualloc::torch_npu_plugin
