// The stock wheel as the plug-in meets it.
#pragma once

#include "../pch.h"

namespace npualloc::torch_npu_plugin {

// `allocator` is the one torch_npu registered; it keeps owning operator workspaces.
void meet_wheel(c10_npu::NPUCachingAllocator::NPUAllocator* allocator);

// From now on `torch.npu.memory._set_allocator_settings` also reaches the registered allocator, and
// it knows whether torch_npu's profiler records memory.
void follow_wheel();

}  // namespace npualloc::torch_npu_plugin
