// Private pools, graph capture and checkpoints of pools.
#include "npu_allocator.h"

namespace npualloc::torch_npu_plugin {

void NpuAllocator::beginAllocateToPool(c10::DeviceIndex, c10_npu::MempoolId_t,
                                       std::function<bool(aclrtStream)>) {
  not_supported("beginAllocateToPool");
}

void NpuAllocator::endAllocateToPool(c10::DeviceIndex, c10_npu::MempoolId_t) {
  not_supported("endAllocateToPool");
}

void NpuAllocator::releasePool(c10::DeviceIndex, c10_npu::MempoolId_t) {
  not_supported("releasePool");
}

void NpuAllocator::createOrIncrefPool(c10::DeviceIndex, c10_npu::MempoolId_t,
                                      std::shared_ptr<stock::NPUAllocator>) {
  not_supported("createOrIncrefPool");
}

int NpuAllocator::getPoolUseCount(c10::DeviceIndex, c10_npu::MempoolId_t) {
  not_supported("getPoolUseCount");
}

void NpuAllocator::setUseOnOOM(c10::DeviceIndex, c10_npu::MempoolId_t, bool) {
  not_supported("setUseOnOOM");
}

void NpuAllocator::setNoSplit(c10::DeviceIndex, c10_npu::MempoolId_t) {
  not_supported("setNoSplit");
}

// None can be: a capture begins with markCaptureBegin.
bool NpuAllocator::hasCapturesUnderway(c10::DeviceIndex device) {
  assert_valid_device(device);
  return false;
}

void NpuAllocator::markCaptureBegin(c10::DeviceIndex) { not_supported("markCaptureBegin"); }

void NpuAllocator::markCaptureEnd(c10::DeviceIndex) { not_supported("markCaptureEnd"); }

bool NpuAllocator::checkPoolLiveAllocations(c10::DeviceIndex, c10_npu::MempoolId_t,
                                            const std::unordered_set<void*>&) {
  not_supported("checkPoolLiveAllocations");
}

std::shared_ptr<stock::AllocatorState> NpuAllocator::getCheckpointState(c10::DeviceIndex,
                                                                        c10_npu::MempoolId_t) {
  not_supported("getCheckpointState");
}

stock::CheckpointDelta NpuAllocator::setCheckpointPoolState(
    c10::DeviceIndex, std::shared_ptr<stock::AllocatorState>) {
  not_supported("setCheckpointPoolState");
}

}  // namespace npualloc::torch_npu_plugin
