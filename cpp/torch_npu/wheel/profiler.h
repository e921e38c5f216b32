// Memory reports to the profiler inside the stock wheel.
#pragma once

#include "../host.h"

namespace npualloc::torch_npu_plugin {

// From the first start of torch_npu's profiler on, reports::switches knows whether it records
// memory.
void follow_profiler();

// As host::report_memory.
void report_to_wheel_profiler(const host::MemoryReport& report);

}  // namespace npualloc::torch_npu_plugin
