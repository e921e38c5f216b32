#include "reports.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "../host.h"
#include "mstx.h"

namespace npualloc::torch_npu_plugin::reports {

namespace {

using Kind = host::MemoryReport::Kind;

constexpr std::atomic<bool> kNoProfiler{false};
constexpr bool kNoSanitizer = false;

// Blocks freed while another stream used them: the profiler hears of them again when their events
// have completed. Looked through at the next report. Never destroyed: static destructors free
// blocks too.
struct Pending {
  std::mutex mutex;
  std::vector<BlockView> blocks;
};

Pending& pending() {
  static auto* made = new Pending;
  return *made;
}

DeviceStats stats_of(const ffi::Allocator& core, int device) {
  DeviceStats stats;
  (void)core.device_stats(device, stats);
  return stats;
}

void report(const DeviceStats& stats, const BlockView& block, Kind kind, bool external) {
  const auto size = static_cast<std::int64_t>(block.size);
  host::report_memory({kind, external, block.device, block.addr,
                       kind == Kind::Malloc ? size : -size, stats.allocated_bytes.aggregate.current,
                       stats.reserved_bytes.aggregate.current, stats.active_bytes.aggregate.current,
                       block.stream});
}

bool is_over(const ffi::Allocator& core, const BlockView& block) {
  return core.describe_handle(block.handle).status != Status::Ok;
}

// Totals are those of the block's device at `stats`. Where these have the blocks yet, each is taken
// from them as it is reported.
void report_completed(const ffi::Allocator& core, int device, DeviceStats& stats, bool counted) {
  std::vector<BlockView> over;
  {
    const std::lock_guard<std::mutex> lock(pending().mutex);
    std::vector<BlockView>& blocks = pending().blocks;
    const auto first_over = std::stable_partition(
        blocks.begin(), blocks.end(),
        [&](const BlockView& block) { return block.device != device || !is_over(core, block); });
    over.assign(first_over, blocks.end());
    blocks.erase(first_over, blocks.end());
  }
  for (const BlockView& block : over) {
    if (counted) stats.active_bytes.aggregate.current -= static_cast<std::int64_t>(block.size);
    report(stats, block, Kind::BlockFree, false);
  }
}

}  // namespace

constinit Switches switches{{&kNoProfiler}, {&kNoSanitizer}};

bool wanted() { return watched() || mstx::enabled(); }

Allocation::Allocation(const ffi::Allocator& core, int device, bool external)
    : core_(core), external_(external), profiled_(profiling()) {
  if (!profiled_) return;
  before_ = stats_of(core, device);
  // Something else than a request ended their use: `empty_cache`, say.
  report_completed(core, device, before_, false);
}

void Allocation::done(std::uintptr_t addr) {
  if (!wanted()) return;
  const BlockView block = core_.describe_block(addr);
  if (block.status != Status::Ok) return;
  const DeviceStats stats = stats_of(core_, block.device);
  if (mstx::enabled()) {
    mstx::allocated(block.device, addr, block.size,
                    static_cast<std::uint64_t>(stats.reserved_bytes.aggregate.current));
  }
  if (profiled_) {
    report_completed(core_, block.device, before_, true);
    report(stats, block, Kind::Malloc, external_);
  }
  if (sanitizing() && !external_) host::trace_allocation(addr);
}

Free::Free(const ffi::Allocator& core, std::uintptr_t addr, bool external)
    : core_(core), external_(external), wanted_(wanted()) {
  if (!wanted_) return;
  block_ = core.describe_block(addr);
  wanted_ = block_.status == Status::Ok;
  if (wanted_ && sanitizing() && !external) host::trace_deallocation(addr);
}

void Free::done() const {
  if (!wanted_) return;
  const DeviceStats stats = stats_of(core_, block_.device);
  if (mstx::enabled()) {
    mstx::freed(block_.device, block_.addr,
                static_cast<std::uint64_t>(stats.reserved_bytes.aggregate.current));
  }
  if (!profiling()) return;
  if (is_over(core_, block_)) {
    report(stats, block_, Kind::BlockFree, external_);
  } else {
    const std::lock_guard<std::mutex> lock(pending().mutex);
    pending().blocks.push_back(block_);
  }
  report(stats, block_, Kind::Free, external_);
}

Restore::Restore(const ffi::Allocator& core, int device, const std::vector<BlockView>& live)
    : core_(core), device_(device), before_(stats_of(core, device)), freed_(live) {}

void Restore::done(const rust::Vec<std::size_t>& allocated) const {
  DeviceStats stats = before_;
  std::int64_t& in_use = stats.allocated_bytes.aggregate.current;
  std::int64_t& active = stats.active_bytes.aggregate.current;
  const auto reserved = [](const DeviceStats& of) {
    return static_cast<std::uint64_t>(of.reserved_bytes.aggregate.current);
  };
  for (const BlockView& block : freed_) {
    in_use -= static_cast<std::int64_t>(block.size);
    active -= static_cast<std::int64_t>(block.size);
    if (mstx::enabled()) mstx::freed(device_, block.addr, reserved(stats));
    if (!profiling()) continue;
    report(stats, block, Kind::BlockFree, false);
    report(stats, block, Kind::Free, false);
  }
  stats.reserved_bytes = stats_of(core_, device_).reserved_bytes;
  for (const std::size_t addr : allocated) {
    const BlockView block = core_.describe_block(addr);
    if (block.status != Status::Ok) continue;
    in_use += static_cast<std::int64_t>(block.size);
    active += static_cast<std::int64_t>(block.size);
    if (mstx::enabled()) mstx::allocated(device_, block.addr, block.size, reserved(stats));
    if (profiling()) report(stats, block, Kind::Malloc, false);
  }
}

}  // namespace npualloc::torch_npu_plugin::reports
