// Private pools, graph capture and checkpoints of pools.
#include <array>
#include <optional>
#include <set>

#include "../reports/mstx.h"
#include "npu_allocator.h"
#include "recording.h"
#include "rust/cxx.h"

namespace npualloc::torch_npu_plugin {

namespace {

struct CheckpointState final : stock::AllocatorState {
  CheckpointState(ffi::MempoolId id, rust::Box<ffi::Checkpoint> box)
      : pool(id), state(std::move(box)) {}
  ffi::MempoolId pool;
  rust::Box<ffi::Checkpoint> state;
};

bool is_known(const ffi::Allocator& core, int device, const ffi::MempoolId& pool) {
  return core.pool_use_count(device, pool).status == Status::Ok;
}

std::string text_of(const c10_npu::MempoolId_t& id) {
  return "(" + std::to_string(id.first) + ", " + std::to_string(id.second) + ")";
}

// The blocks in use of a pool.
std::vector<BlockView> live_blocks(const ffi::Allocator& core, int device,
                                   const ffi::MempoolId& pool) {
  std::vector<BlockView> found;
  const rust::Box<ffi::Snapshot> snapshot = core.snapshot(device, pool);
  const rust::Vec<ffi::BlockInfo> blocks = snapshot->blocks();
  for (const ffi::SegmentInfo& segment : snapshot->segments()) {
    std::uintptr_t addr = segment.addr;
    for (std::size_t i = 0; i < segment.block_count; ++i) {
      const ffi::BlockInfo& block = blocks[segment.first_block + i];
      const BlockView view = block.allocated ? core.describe_block(addr) : BlockView{};
      if (block.allocated && view.status == Status::Ok) found.push_back(view);
      addr += block.size;
    }
  }
  return found;
}

// Tells a recording which blocks came and went as a pool went back to a checkpoint: `before` and
// `after` are its live ones. Those that stayed are not told.
void record_restore(const ffi::Allocator& core, const ffi::MempoolId& pool,
                    const std::vector<BlockView>& before, const rust::Vec<std::size_t>& after) {
  using Key = std::array<std::size_t, 3>;
  const auto key = [](const BlockView& block) {
    return Key{block.addr, block.size, block.requested_size};
  };
  std::vector<BlockView> now;
  for (const std::size_t addr : after) now.push_back(core.describe_block(addr));
  std::set<Key> were;
  std::set<Key> are;
  for (const BlockView& block : before) were.insert(key(block));
  for (const BlockView& block : now) are.insert(key(block));
  for (const BlockView& block : before) {
    if (!are.contains(key(block))) recording::freed(block.addr);
  }
  for (const BlockView& block : now) {
    if (were.contains(key(block))) continue;
    recording::allocated(core, block.device, block.addr, block.requested_size,
                         reinterpret_cast<aclrtStream>(block.stream), pool);
  }
}

}  // namespace

void NpuAllocator::beginAllocateToPool(c10::DeviceIndex device, c10_npu::MempoolId_t mempool_id,
                                       std::function<bool(aclrtStream)> filter) {
  assert_valid_device(device);
  check(core().create_or_incref_pool(device, to_ffi(mempool_id), false));
  if (!routes_.open(device, mempool_id, std::move(filter))) {
    check(core().release_pool(device, to_ffi(mempool_id)));
    TORCH_CHECK(false, "beginAllocateToPool: already recording to mempool_id");
  }
  update_detailed();
}

void NpuAllocator::endAllocateToPool(c10::DeviceIndex device, c10_npu::MempoolId_t mempool_id) {
  assert_valid_device(device);
  TORCH_CHECK(routes_.close(device, mempool_id),
              "endAllocatePool: not currently recording to mempool_id");
  update_detailed();
}

void NpuAllocator::releasePool(c10::DeviceIndex device, c10_npu::MempoolId_t mempool_id) {
  assert_valid_device(device);
  const ffi::MempoolId pool = to_ffi(mempool_id);
  check(core().release_pool(device, pool));
  if (recording::on() && core().pool_use_count(device, pool).value == 0) {
    recording::pool_released(device, pool);
  }
  // Without a cache nobody would empty it later. As a pool's: destructors call this, where a
  // poisoned device is no error.
  if (force_uncached() && !core().has_captures_underway(device)) {
    check(core().empty_pool(device, {0, 0}, contexts_.gather(stock::RecordContext::ALL)));
  }
}

void NpuAllocator::createOrIncrefPool(c10::DeviceIndex device, c10_npu::MempoolId_t mempool_id,
                                      std::shared_ptr<stock::NPUAllocator> allocator) {
  assert_valid_device(device);
  const ffi::MempoolId pool = to_ffi(mempool_id);
  check(allocator == nullptr ? core().create_or_incref_pool(device, pool, false)
                             : pool_allocators_.create_pool(core(), device, pool, allocator));
}

int NpuAllocator::getPoolUseCount(c10::DeviceIndex device, c10_npu::MempoolId_t mempool_id) {
  assert_valid_device(device);
  const ffi::CountOutcome outcome = core().pool_use_count(device, to_ffi(mempool_id));
  check(outcome.status, outcome.code);
  return static_cast<int>(outcome.value);
}

void NpuAllocator::setUseOnOOM(c10::DeviceIndex device, c10_npu::MempoolId_t mempool_id, bool use) {
  assert_valid_device(device);
  check(core().set_use_on_oom(device, to_ffi(mempool_id), use));
}

void NpuAllocator::setNoSplit(c10::DeviceIndex device, c10_npu::MempoolId_t mempool_id) {
  assert_valid_device(device);
  check(core().set_no_split(device, to_ffi(mempool_id)));
}

bool NpuAllocator::hasCapturesUnderway(c10::DeviceIndex device) {
  assert_valid_device(device);
  return core().has_captures_underway(device);
}

void NpuAllocator::markCaptureBegin(c10::DeviceIndex device) {
  assert_valid_device(device);
  check(core().mark_capture_begin(device));
}

void NpuAllocator::markCaptureEnd(c10::DeviceIndex device) {
  assert_valid_device(device);
  check(core().mark_capture_end(device));
}

bool NpuAllocator::checkPoolLiveAllocations(c10::DeviceIndex device,
                                            c10_npu::MempoolId_t mempool_id,
                                            const std::unordered_set<void*>& expected) {
  assert_valid_device(device);
  TORCH_CHECK(is_known(core(), device, to_ffi(mempool_id)), "Could not find pool of id ",
              text_of(mempool_id), PTA_ERROR(ErrCode::INTERNAL));
  std::vector<std::size_t> addresses;
  addresses.reserve(expected.size());
  for (void* ptr : expected) addresses.push_back(reinterpret_cast<std::uintptr_t>(ptr));
  const ffi::CountOutcome outcome = core().check_pool_live_allocations(
      device, to_ffi(mempool_id),
      rust::Slice<const std::size_t>(addresses.data(), addresses.size()));
  check(outcome.status, outcome.code);
  return outcome.value != 0;
}

std::shared_ptr<stock::AllocatorState> NpuAllocator::getCheckpointState(c10::DeviceIndex device,
                                                                        c10_npu::MempoolId_t id) {
  assert_valid_device(device);
  TORCH_CHECK(is_known(core(), device, to_ffi(id)), "Could not find pool of id ", text_of(id),
              PTA_ERROR(ErrCode::NOT_FOUND));
  try {
    return std::make_shared<CheckpointState>(to_ffi(id), core().checkpoint(device, to_ffi(id)));
  } catch (const rust::Error& error) {
    TORCH_CHECK(false, error.what(), PTA_ERROR(ErrCode::INTERNAL));
  }
}

stock::CheckpointDelta NpuAllocator::setCheckpointPoolState(
    c10::DeviceIndex device, std::shared_ptr<stock::AllocatorState> state) {
  assert_valid_device(device);
  const auto checkpoint = std::dynamic_pointer_cast<CheckpointState>(state);
  TORCH_CHECK(checkpoint != nullptr, "Expected PrivatePoolState", PTA_ERROR(ErrCode::PARAM));
  const ffi::MempoolId pool = checkpoint->pool;
  TORCH_CHECK(is_known(core(), device, pool), "Could not find private pool id ",
              text_of({pool.first, pool.second}), PTA_ERROR(ErrCode::INTERNAL));
  try {
    const bool reported = mstx::enabled() || reports::profiling();
    std::vector<BlockView> before;
    if (reported || recording::on()) before = live_blocks(core(), device, pool);
    std::optional<reports::Restore> report;
    if (reported) report.emplace(core(), device, before);
    const ffi::Restored restored = core().restore(device, *checkpoint->state);
    if (report.has_value()) report->done(restored.allocated);
    if (recording::on()) record_restore(core(), pool, before, restored.allocated);
    stock::CheckpointDelta delta;
    for (const std::size_t address : restored.freed) {
      delta.ptrs_freed.push_back(reinterpret_cast<void*>(address));
    }
    for (const std::size_t address : restored.allocated) {
      void* ptr = reinterpret_cast<void*>(address);
      delta.dataptrs_allocd.emplace_back(ptr, ptr, &delete_block,
                                         c10::Device(c10::DeviceType::PrivateUse1, device));
    }
    deliver_trace();
    return delta;
  } catch (const rust::Error& error) {
    TORCH_CHECK(false, error.what(), PTA_ERROR(ErrCode::INTERNAL));
  }
}

}  // namespace npualloc::torch_npu_plugin
