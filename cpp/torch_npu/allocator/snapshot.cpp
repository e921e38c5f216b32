// Snapshots, the allocation history, trace trackers.
#include <algorithm>

#include "npu_allocator.h"

namespace npualloc::torch_npu_plugin {

namespace {

using StockAction = stock::TraceEntry::Action;
static_assert(static_cast<int>(ffi::TraceAction::Alloc) == StockAction::ALLOC);
static_assert(static_cast<int>(ffi::TraceAction::FreeRequested) == StockAction::FREE_REQUESTED);
static_assert(static_cast<int>(ffi::TraceAction::FreeCompleted) == StockAction::FREE_COMPLETED);
static_assert(static_cast<int>(ffi::TraceAction::SegmentAlloc) == StockAction::SEGMENT_ALLOC);
static_assert(static_cast<int>(ffi::TraceAction::SegmentFree) == StockAction::SEGMENT_FREE);
static_assert(static_cast<int>(ffi::TraceAction::SegmentMap) == StockAction::SEGMENT_MAP);
static_assert(static_cast<int>(ffi::TraceAction::SegmentUnmap) == StockAction::SEGMENT_UNMAP);
static_assert(static_cast<int>(ffi::TraceAction::Snapshot) == StockAction::SNAPSHOT);
static_assert(static_cast<int>(ffi::TraceAction::OutOfMemory) == StockAction::OOM);

aclrtStream stream_of(std::uintptr_t stream) { return reinterpret_cast<aclrtStream>(stream); }

stock::TraceEntry convert(const ffi::TraceEntry& entry, int device) {
  return {static_cast<StockAction>(entry.action),
          device,
          static_cast<int64_t>(entry.addr),
          entry.size,
          stream_of(entry.stream),
          from_ffi(entry.pool),
          borrow_handle(entry.context)};
}

stock::BlockInfo convert(const ffi::BlockInfo& block) {
  stock::BlockInfo info;
  info.size = static_cast<int64_t>(block.size);
  info.requested_size = static_cast<int64_t>(block.requested_size);
  info.allocated = block.allocated;
  info.active = block.active;
  info.context_when_allocated = borrow_handle(block.context);
  return info;
}

stock::SegmentInfo convert(const ffi::SegmentInfo& segment, int device,
                           const rust::Vec<ffi::BlockInfo>& blocks) {
  stock::SegmentInfo info;
  info.device = device;
  info.address = static_cast<int64_t>(segment.addr);
  info.stream = stream_of(segment.stream);
  info.total_size = static_cast<int64_t>(segment.total_size);
  info.requested_size = static_cast<int64_t>(segment.requested_size);
  info.allocated_size = static_cast<int64_t>(segment.allocated_size);
  info.active_size = static_cast<int64_t>(segment.active_size);
  info.is_large = segment.is_large;
  info.is_expandable = segment.is_expandable;
  info.owner_private_pool_id = from_ffi(segment.pool);
  info.context_when_allocated = borrow_handle(segment.context);
  info.blocks.reserve(segment.block_count);
  for (std::size_t i = 0; i < segment.block_count; ++i) {
    info.blocks.push_back(convert(blocks[segment.first_block + i]));
  }
  return info;
}

std::vector<stock::TraceEntry> convert(const ffi::Trace& trace, int device) {
  const rust::Vec<ffi::TraceEntry> entries = trace.entries();
  std::vector<stock::TraceEntry> converted;
  converted.reserve(entries.size());
  for (const ffi::TraceEntry& entry : entries) converted.push_back(convert(entry, device));
  return converted;
}

}  // namespace

stock::SnapshotInfo NpuAllocator::snapshot(c10_npu::MempoolId_t mempool_id) {
  stock::SnapshotInfo result;
  for (int device = 0; device < core().device_count(); ++device) {
    result.device_traces.push_back(convert(*core().trace(device), device));
    const rust::Box<ffi::Snapshot> snapshot = core().snapshot(device, to_ffi(mempool_id));
    const rust::Vec<ffi::BlockInfo> blocks = snapshot->blocks();
    for (const ffi::SegmentInfo& segment : snapshot->segments()) {
      result.segments.push_back(convert(segment, device, blocks));
    }
  }
  deliver_trace();
  return result;
}

bool NpuAllocator::isHistoryEnabled() {
  int device = 0;
  NPU_CHECK_ERROR(c10_npu::GetDevice(&device));
  return core().is_history_enabled(device);
}

void NpuAllocator::recordHistory(bool enabled, stock::CreateContextFn recorder, size_t max_entries,
                                 stock::RecordContext when) {
  TORCH_CHECK(when == stock::RecordContext::NEVER || recorder != nullptr,
              "recordHistory needs a function that records contexts", PTA_ERROR(ErrCode::INTERNAL));
  const stock::RecordContext level = enabled ? when : stock::RecordContext::NEVER;
  check(core().record_history(enabled, std::max<size_t>(1, max_entries),
                              static_cast<std::uint8_t>(level)));
  contexts_.set(enabled ? recorder : nullptr, level);
  history_.store(enabled);
  update_detailed();
}

void NpuAllocator::attachAllocatorTraceTracker(stock::AllocatorTraceTracker tracker) {
  {
    const std::lock_guard<std::recursive_mutex> lock(trackers_mutex_);
    trackers_.push_back(std::move(tracker));
  }
  {
    // Either the devices are there, or the first `init` sees that they are tracked.
    const std::lock_guard<std::mutex> init_lock(init_mutex_);
    core().attach_trace_trackers();
    tracked_.store(true);
  }
  update_detailed();
}

void NpuAllocator::deliver_trace() const {
  if (C10_LIKELY(!tracked_.load(std::memory_order_acquire))) return;
  const std::lock_guard<std::recursive_mutex> lock(trackers_mutex_);
  for (int device = 0; device < core().device_count(); ++device) {
    for (const stock::TraceEntry& entry : convert(*core().take_undelivered_trace(device), device)) {
      // A tracker may attach another one: the list may grow and move.
      for (std::size_t i = 0; i < trackers_.size(); ++i) {
        const stock::AllocatorTraceTracker tracker = trackers_[i];
        tracker(entry);
      }
    }
  }
}

}  // namespace npualloc::torch_npu_plugin
