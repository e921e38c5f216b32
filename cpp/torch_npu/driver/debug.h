// What the debug mode (NPUALLOC_DEBUG, docs/debugging.md) asks of torch_npu and the runtime.
#pragma once

#include "npualloc/driver_table.h"

namespace npualloc::torch_npu_plugin {

// Fills the functions for the debug mode in; without those for contents where the runtime lacks
// what they need.
void add_debug_functions(DriverTable& table);

}  // namespace npualloc::torch_npu_plugin
