// Snapshots, the allocation history, trace trackers.
#include "npu_allocator.h"

namespace npualloc::torch_npu_plugin {

stock::SnapshotInfo NpuAllocator::snapshot(c10_npu::MempoolId_t) { not_supported("snapshot"); }

bool NpuAllocator::isHistoryEnabled() { return false; }

void NpuAllocator::recordHistory(bool enabled, stock::CreateContextFn, size_t,
                                 stock::RecordContext) {
  // Switching it off is fine: it never is on.
  if (enabled) not_supported("recordHistory");
}

void NpuAllocator::attachAllocatorTraceTracker(stock::AllocatorTraceTracker) {
  not_supported("attachAllocatorTraceTracker");
}

}  // namespace npualloc::torch_npu_plugin
