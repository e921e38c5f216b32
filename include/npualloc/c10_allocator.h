/// \file
/// npualloc as the c10::DeviceAllocator of a PrivateUse1 backend. Needs torch's headers, not
/// torch_npu's.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "npualloc/allocator.h"

namespace npualloc::c10_backend {

/// What only the backend knows. Called from any thread, without any allocator lock.
class Hooks {
 public:
  virtual ~Hooks() = default;

  /// The calling thread's device.
  virtual c10::DeviceIndex current_device() = 0;
  /// The calling thread's stream on `device`, as a number. Memory freed on a stream is reused on
  /// it.
  virtual std::uintptr_t current_stream(c10::DeviceIndex device) = 0;
  /// `stream` as `current_stream` would name it, or nothing where that can't be told. With it, a
  /// use of memory by the stream that it was allocated for needs no event, as in torch's own
  /// allocators; without it the memory waits for one.
  virtual std::optional<std::uintptr_t> number(const c10::Stream& /*stream*/) {
    return std::nullopt;
  }
  /// How the driver table's event functions name `stream`.
  virtual StreamToken token(const c10::Stream& stream) {
    return {stream.id(), stream.device_index(), 0};
  }
  /// Copies within device memory.
  virtual void copy(void* dest, const void* src, std::size_t count) = 0;
};

/// What is allocated and freed shows in torch's profiler (`profile_memory=True`).
///
/// Errors: c10::OutOfMemoryError when memory runs out, c10::NotImplementedError for what is not
/// there, c10::Error for everything else. A failed call changes nothing. All methods may be called
/// from any thread.
///
/// The deleter of a c10::DataPtr is a plain function, so at most one object of this class can exist
/// at a time; a second one throws c10::Error. It must outlive every tensor it made: create it once
/// and never destroy it, except in tests.
class DeviceAllocator : public c10::DeviceAllocator {
 public:
  /// `hooks` and what `table` points to must live as long as this object.
  DeviceAllocator(Hooks& hooks, const DriverTable& table, const AllocatorOptions& options = {});
  ~DeviceAllocator() override;

  /// Makes room for devices 0 … device_count − 1.
  void init(int device_count);

  /// Whether `init` was called for at least one device.
  bool initialized() override;
  /// Memory on the hooks' current device, for its current stream. Zero bytes give a null pointer.
  c10::DataPtr allocate(std::size_t bytes) override;
  /// The deleter of every DataPtr this class makes.
  c10::DeleterFnPtr raw_deleter() const override;
  /// Copies within device memory, by the hooks.
  void copy_data(void* dest, const void* src, std::size_t count) const override;

  /// {0, 0}: the default pool and private pools out of use; otherwise that pool, if out of use.
  void emptyCache(c10::MempoolId_t mempool_id = {0, 0}) override;
  /// Null pointers and memory of other allocators are ignored.
  void recordStream(const c10::DataPtr& ptr, c10::Stream stream) override;
  /// The counters behind `torch.accelerator.memory_stats()`.
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  /// What was allocated and freed so far counts from 0 again.
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  /// Peaks start again from the current values.
  void resetPeakStats(c10::DeviceIndex device) override;
  /// Free and total bytes of the device. Overrides the base's method where torch has one (no
  /// `override`: older versions don't).
  virtual std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device);

  /// The torch-free allocator underneath.
  npualloc::Allocator& core() noexcept { return core_; }

 private:
  Hooks& hooks_;
  DriverTable table_;
  npualloc::Allocator core_;
  /// A bit for each device that held memory when the cache was emptied.
  std::atomic<std::uint64_t> used_devices_{0};
};

}  // namespace npualloc::c10_backend
