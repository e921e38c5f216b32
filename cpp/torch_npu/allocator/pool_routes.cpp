#include "pool_routes.h"

#include <algorithm>
#include <utility>

namespace npualloc::torch_npu_plugin {

namespace {

template <typename Scopes>
auto scope_of(Scopes& scopes, int device, const c10_npu::MempoolId_t& id) {
  return std::find_if(scopes.begin(), scopes.end(),
                      [&](const auto& scope) { return scope.device == device && scope.id == id; });
}

}  // namespace

bool PoolRoutes::open(int device, const c10_npu::MempoolId_t& id, Filter filter) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  if (scope_of(scopes_, device, id) != scopes_.end()) return false;
  scopes_.push_back({device, id, std::move(filter)});
  count_.store(scopes_.size(), std::memory_order_release);
  return true;
}

bool PoolRoutes::close(int device, const c10_npu::MempoolId_t& id) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  const auto found = scope_of(scopes_, device, id);
  if (found == scopes_.end()) return false;
  scopes_.erase(found);
  count_.store(scopes_.size(), std::memory_order_release);
  return true;
}

ffi::MempoolId PoolRoutes::find(int device, aclrtStream stream) const {
  if (empty()) return {0, 0};
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (scope->device == device && scope->filter(stream)) return to_ffi(scope->id);
  }
  return {0, 0};
}

ffi::Outcome PoolAllocators::create_pool(const ffi::Allocator& core, int device,
                                         const ffi::MempoolId& id,
                                         const std::shared_ptr<NPUAllocator>& allocator) {
  // Destroyed when the lock is released: it is the user's code.
  std::shared_ptr<NPUAllocator> gone;
  // Held over both: the allocator is known before the pool can be used, and `sweep` never sees it
  // without its pool.
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [entry, added] = allocators_.try_emplace({device, id.first, id.second}, allocator);
  const bool known = core.pool_use_count(device, id).status == ffi::Status::Ok;
  const ffi::Outcome outcome = core.create_or_incref_pool(device, id, true);
  if (outcome.status != ffi::Status::Ok) {
    if (added) allocators_.erase(entry);
  } else if (!added && !known) {
    // What a pool of that id had that is gone since, before anybody swept.
    gone = std::exchange(entry->second, allocator);
  }
  return outcome;
}

std::shared_ptr<PoolAllocators::NPUAllocator> PoolAllocators::find(int device,
                                                                   const ffi::MempoolId& id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = allocators_.find({device, id.first, id.second});
  return found == allocators_.end() ? nullptr : found->second;
}

void PoolAllocators::sweep(const ffi::Allocator& core) {
  // Destroyed when the lock is released: they are the user's code.
  std::vector<std::shared_ptr<NPUAllocator>> gone;
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(allocators_, [&](auto& entry) {
    const auto& [device, first, second] = entry.first;
    if (core.pool_use_count(device, {first, second}).status == ffi::Status::Ok) return false;
    gone.push_back(std::move(entry.second));
    return true;
  });
}

}  // namespace npualloc::torch_npu_plugin
