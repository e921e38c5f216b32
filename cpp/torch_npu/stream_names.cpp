#include "stream_names.h"

namespace npualloc::torch_npu_plugin {

namespace {

std::uintptr_t handle_of(const c10_npu::NPUStream& stream) {
  return reinterpret_cast<std::uintptr_t>(stream.stream(false));
}

}  // namespace

void StreamNames::note_current(c10::DeviceIndex device) {
  const c10_npu::NPUStream current = c10_npu::getCurrentNPUStream(device);
  const std::lock_guard<std::mutex> lock(mutex_);
  streams_.insert_or_assign(handle_of(current), current);
}

std::optional<c10_npu::NPUStream> StreamNames::find(c10::DeviceIndex device,
                                                    std::uintptr_t handle) {
  const c10_npu::NPUStream current = c10_npu::getCurrentNPUStream(device);
  if (handle_of(current) == handle) return current;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = streams_.find(handle);
  if (found == streams_.end() || found->second.device_index() != device) return std::nullopt;
  return found->second;
}

// Leaked: events are recorded until the process ends.
StreamNames& stream_names() {
  static auto* const names = new StreamNames;
  return *names;
}

}  // namespace npualloc::torch_npu_plugin
