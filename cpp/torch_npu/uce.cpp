// Uncorrectable memory errors. No block can be marked unsafe yet, so every block is safe.
#include "npu_allocator.h"

namespace npualloc::torch_npu_plugin {

bool NpuAllocator::checkUceInMemPool(int) { not_supported("checkUceInMemPool"); }

bool NpuAllocator::checkBlockIsSafe(const c10::DataPtr& ptr) {
  if (ptr.get() == nullptr || ptr.get_deleter() != &delete_block) return true;
  const auto addr = reinterpret_cast<std::uintptr_t>(ptr.get_context());
  TORCH_INTERNAL_ASSERT(core().describe_block(addr).status == Status::Ok,
                        "No allocated block can be found", PTA_ERROR(ErrCode::NOT_FOUND));
  return true;
}

void NpuAllocator::markAllBlockUnsafe(int) { not_supported("markAllBlockUnsafe"); }

void NpuAllocator::updateBlockToSafe(const c10::DataPtr& ptr) { checkBlockIsSafe(ptr); }

}  // namespace npualloc::torch_npu_plugin
