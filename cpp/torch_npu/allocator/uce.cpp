// Uncorrectable memory errors: blocks hit by one are marked until they are written anew.
#include "../host.h"
#include "npu_allocator.h"

namespace npualloc::torch_npu_plugin {

bool NpuAllocator::checkUceInMemPool(int device) {
  assert_valid_device(device);
  std::vector<aclrtMemUceInfo> hits;
  for (const aclrtMemUceInfo& range : host::bad_ranges(device)) {
    const ffi::CountOutcome outcome =
        core().mark_damaged(device, reinterpret_cast<std::uintptr_t>(range.addr), range.len);
    check(outcome.status, outcome.code);
    if (outcome.value > 0) hits.push_back(range);
  }
  host::found_damage(device, hits);
  return !hits.empty();
}

bool NpuAllocator::checkBlockIsSafe(const c10::DataPtr& ptr) {
  if (ptr.get() == nullptr || ptr.get_deleter() != &delete_block) return true;
  const ffi::CountOutcome outcome =
      core().is_damaged(reinterpret_cast<std::uintptr_t>(ptr.get_context()));
  TORCH_INTERNAL_ASSERT(outcome.status != Status::InvalidPointer, "No allocated block can be found",
                        PTA_ERROR(ErrCode::NOT_FOUND));
  check(outcome.status, outcome.code);
  return outcome.value == 0;
}

void NpuAllocator::markAllBlockUnsafe(int device) {
  assert_valid_device(device);
  check(core().mark_all_damaged(device));
}

void NpuAllocator::updateBlockToSafe(const c10::DataPtr& ptr) {
  if (ptr.get() == nullptr || ptr.get_deleter() != &delete_block) return;
  const Outcome outcome = core().clear_damaged(reinterpret_cast<std::uintptr_t>(ptr.get_context()));
  TORCH_INTERNAL_ASSERT(outcome.status != Status::InvalidPointer, "No allocated block can be found",
                        PTA_ERROR(ErrCode::NOT_FOUND));
  check(outcome);
}

}  // namespace npualloc::torch_npu_plugin
