// Who is told about each allocation and free besides the statistics: torch_npu's profiler, its
// sanitizer (in a fork only: the stock wheel hides it) and the memory tools that listen through
// mstx.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "npualloc/allocator.h"

namespace npualloc::torch_npu_plugin::reports {

// Flags of torch_npu's, read at every request; at first, and where torch_npu hides them, flags that
// are never set.
struct Switches {
  std::atomic<const std::atomic<bool>*> profiler;
  std::atomic<const bool*> sanitizer;
};
extern Switches switches;

inline bool profiling() noexcept {
  return switches.profiler.load(std::memory_order_acquire)->load(std::memory_order_relaxed);
}
inline bool sanitizing() noexcept { return *switches.sanitizer.load(std::memory_order_acquire); }
// Whether the profiler or the sanitizer wants to know of requests now.
inline bool watched() noexcept { return profiling() || sanitizing(); }
// The same for anyone; to be asked where a request takes the long way anyway.
bool wanted();

// Around an allocation. `external`: through MallocBlock.
class Allocation {
 public:
  Allocation(const ffi::Allocator& core, int device, bool external = false);
  // After it gave the block at `addr`.
  void done(std::uintptr_t addr);

 private:
  const ffi::Allocator& core_;
  // Before it: frees that completed meanwhile are reported with these totals.
  DeviceStats before_;
  bool external_;
  bool profiled_;
};

// Around the free of a block.
class Free {
 public:
  // Before it. An address that is no block is the core's business.
  Free(const ffi::Allocator& core, std::uintptr_t addr, bool external = false);
  // After it succeeded.
  void done() const;

 private:
  const ffi::Allocator& core_;
  BlockView block_{};
  bool external_;
  bool wanted_;
};

// Around the restore of a pool's checkpoint, which ends all its blocks and makes others.
class Restore {
 public:
  // Before it, with the pool's live blocks.
  Restore(const ffi::Allocator& core, int device, const std::vector<BlockView>& live);
  // After it succeeded, with the blocks that are live now.
  void done(const rust::Vec<std::size_t>& allocated) const;

 private:
  const ffi::Allocator& core_;
  int device_;
  DeviceStats before_;
  std::vector<BlockView> freed_;
};

}  // namespace npualloc::torch_npu_plugin::reports
