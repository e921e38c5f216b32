// Which private pool serves a request: the scopes opened by beginAllocateToPool, and the allocators
// that some pools bring along.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <shared_mutex>
#include <tuple>
#include <vector>

#include "../pch.h"
#include "npualloc/bridge.h"

namespace npualloc::torch_npu_plugin {

inline ffi::MempoolId to_ffi(const c10_npu::MempoolId_t& id) { return {id.first, id.second}; }
inline c10_npu::MempoolId_t from_ffi(const ffi::MempoolId& id) { return {id.first, id.second}; }

// Thread-safe.
class PoolRoutes {
 public:
  using Filter = std::function<bool(aclrtStream)>;

  // False when a scope to this pool is open on the device already.
  bool open(int device, const c10_npu::MempoolId_t& id, Filter filter);
  // False when none was open.
  bool close(int device, const c10_npu::MempoolId_t& id);

  bool empty() const noexcept { return count_.load(std::memory_order_acquire) == 0; }
  // The pool of the scope opened last that takes requests of `stream`; {0, 0} without one. Filters
  // run under this object's lock and must not open or close scopes.
  ffi::MempoolId find(int device, aclrtStream stream) const;

 private:
  struct Scope {
    int device;
    c10_npu::MempoolId_t id;
    Filter filter;
  };

  mutable std::shared_mutex mutex_;
  std::vector<Scope> scopes_;
  std::atomic<std::size_t> count_{0};
};

// Allocators that private pools get their memory from. Thread-safe.
class PoolAllocators {
 public:
  using NPUAllocator = c10_npu::NPUCachingAllocator::NPUAllocator;

  // Makes the pool in the core, with this allocator; where that fails nothing is kept.
  ffi::Outcome create_pool(const ffi::Allocator& core, int device, const ffi::MempoolId& id,
                           const std::shared_ptr<NPUAllocator>& allocator);
  std::shared_ptr<NPUAllocator> find(int device, const ffi::MempoolId& id) const;
  // Forgets the allocators of pools that are gone.
  void sweep(const ffi::Allocator& core);

 private:
  using Key = std::tuple<int, std::uint64_t, std::uint64_t>;

  mutable std::mutex mutex_;
  std::map<Key, std::shared_ptr<NPUAllocator>> allocators_;
};

}  // namespace npualloc::torch_npu_plugin
