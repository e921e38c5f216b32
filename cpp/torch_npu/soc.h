// What depends on the part and the CANN version.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace npualloc::torch_npu_plugin {

// Bytes to add to every request on the named part: 32, or none from Ascend950 with CANN 9.1.0 on.
inline std::size_t padding_for(std::string_view soc_name, const std::string& cann_version) {
  if (!soc_name.starts_with("Ascend950")) return 32;
  int major = 0;
  int minor = 0;
  if (std::sscanf(cann_version.c_str(), "%d.%d", &major, &minor) != 2) return 32;
  return major > 9 || (major == 9 && minor >= 1) ? 0 : 32;
}

}  // namespace npualloc::torch_npu_plugin
