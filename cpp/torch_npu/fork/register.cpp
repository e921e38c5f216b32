// The allocator pointer and the registrations, as torch_npu's other files expect them at start.
#include <cstdlib>

#include "../allocator/npu_allocator.h"

namespace c10_npu::NPUCachingAllocator {

std::atomic<NPUAllocator*> allocator;

C10_DEFINE_REGISTRY(FreeNPUMemoryCallbacksRegistry, FreeMemoryCallback);

std::mutex* getFreeMutex() {
  static std::mutex mutex;
  return &mutex;
}

}  // namespace c10_npu::NPUCachingAllocator

namespace npualloc::torch_npu_plugin {

namespace {

const bool registered = [] {
  // Never destroyed: tensors are freed until the very end.
  auto* mine = new NpuAllocator();
  the_allocator.store(mine, std::memory_order_release);
  stock::allocator.store(mine);
  c10::SetAllocator(c10::DeviceType::PrivateUse1, mine);
  std::atexit([] { the_allocator.load()->begin_process_exit(); });
  return true;
}();

}  // namespace

}  // namespace npualloc::torch_npu_plugin
