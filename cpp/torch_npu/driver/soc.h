// What depends on the part and the CANN version.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace npualloc::torch_npu_plugin {

// The part's name; empty where the runtime can't tell.
inline std::string_view soc_name() {
  const char* name = nullptr;
  if (void* function = dlsym(RTLD_DEFAULT, "aclrtGetSocName")) {
    name = reinterpret_cast<const char* (*)()>(function)();
  }
  return name == nullptr ? "" : name;
}

// The newest parts that torch_npu knows.
inline bool is_ascend950_or_later(std::string_view soc_name) {
  return soc_name.starts_with("Ascend950");
}

// Bytes to add to every request on the named part: 32, or none from Ascend950 with CANN 9.1.0 on.
inline std::size_t padding_for(std::string_view soc_name, const std::string& cann_version) {
  if (!is_ascend950_or_later(soc_name)) return 32;
  int major = 0;
  int minor = 0;
  if (std::sscanf(cann_version.c_str(), "%d.%d", &major, &minor) != 2) return 32;
  return major > 9 || (major == 9 && minor >= 1) ? 0 : 32;
}

}  // namespace npualloc::torch_npu_plugin
