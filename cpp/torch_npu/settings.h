// The allocator's settings: from the environment at start, from torch_npu at run time.
#pragma once

#include <string>

namespace npualloc::torch_npu_plugin {

// The text of PYTORCH_NPU_ALLOC_CONF or PYTORCH_ALLOC_CONF; empty when neither is set. Throws
// c10::Error when both are.
std::string environment_config();

// The text of NPUALLOC_DEBUG; empty when it is not set.
std::string environment_debug();

}  // namespace npualloc::torch_npu_plugin
