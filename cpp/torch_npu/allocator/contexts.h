// Stacks recorded with allocations and frees. The core holds them as opaque handles.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "../pch.h"

namespace npualloc::torch_npu_plugin {

using ContextPtr = std::shared_ptr<c10::GatheredContext>;

// A handle owns one reference; 0 is no context.
inline std::uintptr_t make_handle(ContextPtr context) {
  return context == nullptr ? 0
                            : reinterpret_cast<std::uintptr_t>(new ContextPtr(std::move(context)));
}
inline ContextPtr borrow_handle(std::uintptr_t handle) {
  return handle == 0 ? nullptr : *reinterpret_cast<const ContextPtr*>(handle);
}
inline void drop_handle(std::uintptr_t handle) { delete reinterpret_cast<ContextPtr*>(handle); }

// Gathers a context where the recording level asks for one. Thread-safe; to be called without any
// lock, because gathering may take the Python interpreter's.
class ContextRecorder {
 public:
  using Level = c10_npu::NPUCachingAllocator::RecordContext;
  using Function = c10_npu::NPUCachingAllocator::CreateContextFn;

  void set(Function function, Level level) {
    // Whoever sees the new level must see its function: a null one goes out last.
    if (function != nullptr) function_.store(function, std::memory_order_release);
    level_.store(level, std::memory_order_release);
  }

  // A handle, which the caller owns.
  std::uintptr_t gather(Level level) const {
    if (level_.load(std::memory_order_acquire) < level) return 0;
    const Function function = function_.load(std::memory_order_acquire);
    return function == nullptr ? 0 : make_handle(function());
  }

 private:
  std::atomic<Function> function_{nullptr};
  std::atomic<Level> level_{Level::NEVER};
};

}  // namespace npualloc::torch_npu_plugin
