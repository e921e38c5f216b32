// Sharing memory with other processes.
#include "npu_allocator.h"

namespace npualloc::torch_npu_plugin {

stock::ShareableHandle NpuAllocator::shareIpcHandle(void*) { not_supported("shareIpcHandle"); }

std::shared_ptr<void> NpuAllocator::getIpcDevPtr(std::string) { not_supported("getIpcDevPtr"); }

void NpuAllocator::buildServerMemMapForHccl(int, std::shared_ptr<c10d_npu::HCCLComm>) {
  not_supported("buildServerMemMapForHccl");
}

}  // namespace npualloc::torch_npu_plugin
