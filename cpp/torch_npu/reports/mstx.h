// Memory events for CANN's memory tools, through the mstx functions of libms_tools_ext.so.
// Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>

namespace npualloc::torch_npu_plugin::mstx {

// Whether such a tool listens: its hook library is in LD_PRELOAD. Found out once.
bool enabled();

// `reserved`: bytes the allocator holds on the device. Only to be called when enabled.
void allocated(int device, std::uintptr_t addr, std::uint64_t size, std::uint64_t reserved);
void freed(int device, std::uintptr_t addr, std::uint64_t reserved);

}  // namespace npualloc::torch_npu_plugin::mstx
