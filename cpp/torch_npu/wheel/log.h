// torch_npu's logger of memory from outside the wheel.
#pragma once

#include <string>

namespace npualloc::torch_npu_plugin {

bool torch_npu_log_wanted(int level);
void write_to_torch_npu_log(int level, const std::string& text);

}  // namespace npualloc::torch_npu_plugin
