// What torch_npu's recovery functions keep inside the wheel: reached through Python, from which
// they are called.
#pragma once

#include <vector>

#include "../pch.h"

namespace npualloc::torch_npu_plugin::recovery {

// The bad memory that torch_npu noted at its last failure. The driver is not asked again: nothing
// says that it names a range twice. Throws c10::Error where there is no Python.
std::vector<aclrtMemUceInfo> known_ranges();

// From now on torch_npu checks copies for damaged blocks.
void set_unsafe();

}  // namespace npualloc::torch_npu_plugin::recovery
