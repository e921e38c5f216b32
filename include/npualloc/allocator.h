/// \file
/// The allocator as a C++ class, torch-free.
///
/// All methods may be called from any thread. Sizes and addresses are in bytes. The `try_` forms
/// never throw and never build a string; the others throw the types of error.h. A failed call
/// changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "npualloc/bridge.h"
#include "npualloc/driver_table.h"
#include "npualloc/error.h"

namespace npualloc {

using ffi::AllocOutcome;
using ffi::BlockView;
using ffi::CacheInfo;
using ffi::DeviceStats;
using ffi::Outcome;
using ffi::Stat;
using ffi::StatTriple;

/// What an allocator is made with.
struct AllocatorOptions {
  /// The text of PYTORCH_NPU_ALLOC_CONF; empty for the defaults.
  std::string config = {};
  /// Added to every request before rounding: 32 where kernels may read past a tensor's end.
  std::size_t pad_bytes = 0;
  /// The text of NPUALLOC_DEBUG (docs/debugging.md); empty: nothing is checked.
  std::string debug = {};
  /// Settings that `config` is applied to, of which only torch's keys for all accelerators count:
  /// the text of PYTORCH_CUDA_ALLOC_CONF or PYTORCH_HIP_ALLOC_CONF, which torch reads first.
  std::string common_config = {};
};

/// Caches the memory of any number of devices; see the file's description.
class Allocator {
 public:
  /// The functions in `table` must keep to the contract of driver_table.h, and `table.user` must
  /// live, as long as the process uses this allocator. Throws InvalidArgument for a bad
  /// `options.config` or `options.debug`, and for a table without a function that must be there.
  /// Memory that is cached when the allocator goes stays with the driver: empty the cache before.
  explicit Allocator(const DriverTable& table, const AllocatorOptions& options = {});
  ~Allocator() = default;
  /// What is moved from may only be destroyed or assigned to.
  Allocator(Allocator&&) noexcept = default;
  /// Live allocations of the object assigned to must not be used any more.
  Allocator& operator=(Allocator&&) noexcept = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// Makes room for devices 0 … device_count − 1; never shrinks.
  void init(int device_count);
  /// Devices there is room for.
  int device_count() const noexcept { return core_->device_count(); }

  /// Memory on `device`, usable at once on `stream` (an opaque number; 0 is the default stream).
  /// Zero bytes give null.
  void* allocate(int device, std::size_t bytes, std::uintptr_t stream = 0);
  /// Null is ignored.
  void deallocate(void* ptr);

  /// As `allocate`; the outcome's status says whether `addr` is memory.
  AllocOutcome try_allocate(int device, std::size_t bytes, std::uintptr_t stream) noexcept {
    if (bytes == 0) return {0, Status::Ok, 0};
    const std::uintptr_t addr = core_->allocate(device, bytes, stream);
    if (addr != 0) return {addr, Status::Ok, 0};
    const Outcome failure = ffi::last_failure();
    return {0, failure.status, failure.code};
  }
  /// As `deallocate`.
  Outcome try_deallocate(void* ptr) noexcept {
    const bool done = core_->deallocate(reinterpret_cast<std::uintptr_t>(ptr));
    return done ? Outcome{Status::Ok, 0} : ffi::last_failure();
  }

  /// The allocation is used on `stream` too: after it is freed its memory is not given out again
  /// before what was submitted to `stream` until then has completed.
  void record_stream(void* ptr, StreamToken stream);
  /// Takes a recorded use back.
  void erase_stream(void* ptr, StreamToken stream);

  /// The live allocation that starts at `ptr`.
  BlockView describe(const void* ptr) const;
  /// The start of the driver allocation that contains the block at `ptr`; its size where `bytes` is
  /// not null.
  void* base_allocation(const void* ptr, std::size_t* bytes) const;

  /// Returns everything idle to the driver, after waiting for the device.
  void empty_cache(int device);
  /// What is free in the cache of `device`, and its largest block.
  CacheInfo cache_info(int device) const;

  /// The counters of `device` since it was made, or since the last reset.
  DeviceStats stats(int device) const;
  /// What was allocated and freed so far counts from 0 again.
  void reset_accumulated_stats(int device);
  /// Peaks start again from the current values.
  void reset_peak_stats(int device);

  /// Upper limit for reserved memory as a share of the device's capacity, in [0, 1].
  double memory_fraction(int device) const;
  /// Requests that would take reserved memory above it fail. Throws InvalidArgument outside of
  /// [0, 1].
  void set_memory_fraction(int device, double fraction);

  /// Changes settings at run time; throws InvalidArgument and changes nothing when one is bad.
  void apply_settings(std::string_view settings);

  /// From now on frees are dropped and the driver is not called: the runtime is going away.
  void begin_process_exit() noexcept { core_->begin_process_exit(); }

  /// With AllocatorOptions::debug: waits for the device and looks at every red zone and at all
  /// poisoned memory. Returns how many bytes were looked at, 0 where no contents are checked.
  /// Throws MemoryDamage for what was found now or before and not thrown yet; allocations and
  /// empty_cache do so too.
  std::size_t check_memory(int device);

  /// Verifies every invariant; throws InternalError naming the first one broken.
  void check_consistency() const;

  /// The bridge itself, for callers that map statuses themselves.
  const ffi::Allocator& core() const noexcept { return *core_; }

 private:
  rust::Box<ffi::Allocator> core_;
};

}  // namespace npualloc
