#include "pool_routes.h"

#include <algorithm>

namespace npualloc::torch_npu_plugin {

bool PoolRoutes::is_open(int device, const c10_npu::MempoolId_t& id) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  return std::any_of(scopes_.begin(), scopes_.end(),
                     [&](const Scope& scope) { return scope.device == device && scope.id == id; });
}

void PoolRoutes::open(int device, const c10_npu::MempoolId_t& id, Filter filter) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  scopes_.push_back({device, id, std::move(filter)});
  count_.store(scopes_.size(), std::memory_order_release);
}

bool PoolRoutes::close(int device, const c10_npu::MempoolId_t& id) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  const auto found = std::find_if(scopes_.begin(), scopes_.end(), [&](const Scope& scope) {
    return scope.device == device && scope.id == id;
  });
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

void PoolAllocators::add(int device, const ffi::MempoolId& id,
                         std::shared_ptr<NPUAllocator> allocator) {
  const std::lock_guard<std::mutex> lock(mutex_);
  allocators_[{device, id.first, id.second}] = std::move(allocator);
}

void PoolAllocators::remove(int device, const ffi::MempoolId& id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  allocators_.erase({device, id.first, id.second});
}

std::shared_ptr<PoolAllocators::NPUAllocator> PoolAllocators::find(int device,
                                                                   const ffi::MempoolId& id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = allocators_.find({device, id.first, id.second});
  return found == allocators_.end() ? nullptr : found->second;
}

void PoolAllocators::sweep(const ffi::Allocator& core) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(allocators_, [&](const auto& entry) {
    const auto& [device, first, second] = entry.first;
    return core.pool_use_count(device, {first, second}).status != ffi::Status::Ok;
  });
}

}  // namespace npualloc::torch_npu_plugin
