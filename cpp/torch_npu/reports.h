// Who is told about each allocation and free besides the statistics: torch_npu's profiler and
// sanitizer (in a fork only: the stock wheel hides them) and the memory tools that listen through
// mstx.
#pragma once

#include <atomic>
#include <cstdint>

#include "npualloc/allocator.h"

namespace npualloc::torch_npu_plugin::reports {

// Flags of torch_npu's, read at every request; flags that are never set in the plug-in. Changed
// before the first request only.
struct Switches {
  const std::atomic<bool>* profiler;
  const bool* sanitizer;
};
extern Switches switches;

inline bool profiling() noexcept { return switches.profiler->load(std::memory_order_relaxed); }
inline bool sanitizing() noexcept { return *switches.sanitizer; }
// Whether the profiler or the sanitizer wants to know of requests now.
inline bool watched() noexcept { return profiling() || sanitizing(); }
// The same for anyone; to be asked where a request takes the long way anyway.
bool wanted();

// After the block at `addr` was allocated. `external`: through MallocBlock.
void allocated(const ffi::Allocator& core, std::uintptr_t addr, bool external = false);

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

}  // namespace npualloc::torch_npu_plugin::reports
