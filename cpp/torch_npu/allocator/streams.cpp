// Uses of a block by other streams, and collectives that give memory back early.
#include "../host.h"
#include "npu_allocator.h"
#include "recording.h"

namespace npualloc::torch_npu_plugin {

namespace {

StreamToken token(const c10_npu::NPUStream& stream) {
  return {stream.id(), stream.device_index(), 0};
}

// Blocks are known by the start of their memory, which is the context, also where the data were
// aligned.
std::uintptr_t block_address(const c10::DataPtr& ptr) {
  return reinterpret_cast<std::uintptr_t>(ptr.get_context());
}

std::uintptr_t current_stream(int device) {
  return reinterpret_cast<std::uintptr_t>(
      c10_npu::getCurrentNPUStream(static_cast<c10::DeviceIndex>(device)).stream(false));
}

// Memory that came from elsewhere (another process, another allocator, no cache) is not ours to
// track.
bool is_ours(const c10::DataPtr& ptr) {
  return ptr.get() != nullptr && ptr.get_deleter() == &delete_block;
}

}  // namespace

void NpuAllocator::recordStream(const c10::DataPtr& ptr, c10_npu::NPUStream stream) {
  if (!is_ours(ptr)) return;
  if (C10_UNLIKELY(!core().record_stream(block_address(ptr), token(stream)))) {
    TORCH_INTERNAL_ASSERT(ffi::last_failure().status != Status::InvalidPointer,
                          "No allocated block can be found", PTA_ERROR(ErrCode::NOT_FOUND));
    raise_last();
  }
  if (C10_UNLIKELY(recording::on())) recording::used(block_address(ptr), stream.stream(false));
  if (C10_UNLIKELY(reports::sanitizing())) {
    host::trace_record_stream(block_address(ptr), stream.stream(false));
  }
}

void NpuAllocator::eraseStream(const c10::DataPtr& ptr, c10_npu::NPUStream stream) {
  if (ptr.get() == nullptr) return;
  if (!is_ours(ptr)) {
    TORCH_WARN_ONCE("Tensor not is not allocated by NPUCachingAllocator, skip eraseStream.");
    return;
  }
  const BlockView view = core().describe_block(block_address(ptr));
  check(view.status, 0);
  // The collective's completion was awaited on the current stream only. For a block of another
  // stream that says nothing: its memory could be given out there before the collective is done.
  if (view.stream != current_stream(view.device)) return;
  check(core().erase_stream(view.addr, token(stream)));
  if (C10_UNLIKELY(reports::sanitizing())) {
    host::trace_erase_stream(view.addr, stream.stream(false));
  }
}

void* NpuAllocator::getBlockPtr(const c10::DataPtr& ptr) {
  if (ptr.get() == nullptr) return nullptr;
  const BlockView view = core().describe_block(block_address(ptr));
  // Memory of others has no block, as in the stock allocator.
  return view.status == Status::Ok ? reinterpret_cast<void*>(view.handle) : nullptr;
}

void NpuAllocator::recordHcclWorkForBlock(void* block_ptr, void* work_ptr) {
  TORCH_CHECK(block_ptr != nullptr, "invalid block pointer");
  const std::lock_guard<std::mutex> lock(works_mutex_);
  if (works_.size() >= works_sweep_at_) {
    std::erase_if(works_, [this](const auto& entry) {
      return core().describe_handle(entry.first).status != Status::Ok;
    });
    works_sweep_at_ = std::max<std::size_t>(1024, 2 * works_.size());
  }
  works_[reinterpret_cast<std::uintptr_t>(block_ptr)] = work_ptr;
}

void NpuAllocator::eraseStreamWithBlockPtr(void* block_ptr, c10_npu::NPUStream stream,
                                           void* work_ptr) {
  TORCH_CHECK(block_ptr != nullptr, "invalid block pointer");
  TORCH_CHECK(work_ptr != nullptr, "invalid hccl work pointer");
  const auto handle = reinterpret_cast<std::uintptr_t>(block_ptr);
  const BlockView view = core().describe_handle(handle);
  if (view.status == Status::InvalidPointer) return;  // Its events completed meanwhile.
  check(view.status, 0);
  // The collective may still give it back on the block's own stream.
  if (view.stream != current_stream(view.device)) return;
  {
    const std::lock_guard<std::mutex> lock(works_mutex_);
    const auto found = works_.find(handle);
    // Another collective used the block since: it is the one to give it back.
    if (found == works_.end() || found->second != work_ptr) return;
    works_.erase(found);
  }
  const Outcome outcome = core().erase_stream_by_handle(handle, token(stream));
  if (outcome.status == Status::InvalidPointer) return;
  check(outcome);
  if (C10_UNLIKELY(reports::sanitizing())) {
    host::trace_erase_stream(view.addr, stream.stream(false));
  }
}

void NpuAllocator::cleanEvent() {
  for (int device = 0; device < core().device_count(); ++device) {
    check(core().drop_pending_events(device));
  }
}

}  // namespace npualloc::torch_npu_plugin
