// Runtime streams as torch_npu names them: an event must be recorded through its NPUStream.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "torch_npu/csrc/core/npu/NPUStream.h"

namespace npualloc::torch_npu_plugin {

// Thread-safe. torch_npu's streams live as long as the process, so nothing is ever removed.
class StreamNames {
 public:
  // The stream with this handle of the runtime; nothing when torch_npu has not made it. Slow for a
  // stream that was not found before.
  std::optional<c10_npu::NPUStream> find(c10::DeviceIndex device, std::uintptr_t handle);

 private:
  // Notes all streams that torch_npu has made on a device.
  void note_pools(c10::DeviceIndex device);

  std::mutex mutex_;
  std::unordered_map<std::uintptr_t, c10_npu::NPUStream> streams_;
};

StreamNames& stream_names();

}  // namespace npualloc::torch_npu_plugin
