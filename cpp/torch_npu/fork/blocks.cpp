// Blocks by handle, for graph engines: a handle is the one of npualloc::BlockView.
#include <algorithm>

#include "../allocator/npu_allocator.h"
#include "torch_npu/csrc/core/npu/NPUBlockHandle.h"

namespace c10_npu::NPUCachingAllocator {

namespace {

namespace plugin = npualloc::torch_npu_plugin;

const plugin::NpuAllocator& current() { return *plugin::the_allocator.load(); }

npualloc::BlockView block_of(const void* handle) {
  TORCH_INTERNAL_ASSERT(handle != nullptr, "block", PTA_ERROR(ErrCode::PTR));
  const npualloc::BlockView block =
      current().core().describe_handle(reinterpret_cast<std::uintptr_t>(handle));
  TORCH_CHECK(block.status == npualloc::Status::Ok, "npualloc: invalid block handle ", handle,
              PTA_ERROR(ErrCode::PTR));
  return block;
}

}  // namespace

void* MallocBlock(size_t size, void* stream, int device) {
  if (device == -1) NPU_CHECK_ERROR(c10_npu::GetDevice(&device));
  if (device < 0 || device >= current().core().device_count()) return nullptr;
  TORCH_INTERNAL_ASSERT(stream != nullptr, "stream", PTA_ERROR(ErrCode::NOT_FOUND));
  // The stock allocator gives a block for 0 bytes too.
  void* ptr = current().allocate_external(device, std::max<size_t>(size, 1), stream);
  return reinterpret_cast<void*>(
      current().core().describe_block(reinterpret_cast<std::uintptr_t>(ptr)).handle);
}

void FreeBlock(void* handle) {
  current().free_external(reinterpret_cast<void*>(block_of(handle).addr));
}

void* GetBlockPtr(const void* handle) { return reinterpret_cast<void*>(block_of(handle).addr); }

size_t GetBlockSize(const void* handle) { return block_of(handle).size; }

}  // namespace c10_npu::NPUCachingAllocator
