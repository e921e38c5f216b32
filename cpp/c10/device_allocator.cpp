#include <c10/util/Exception.h>

#include <atomic>

#include "convert.h"
#include "npualloc/c10_allocator.h"

namespace npualloc::c10_backend {

namespace {

std::atomic<DeviceAllocator*> the_instance{nullptr};

// What torch's profiler (`profile_memory=True`) is told with each event.
struct Totals {
  explicit Totals(const ffi::Allocator& core, int device) {
    DeviceStats stats;
    check(core.device_stats(device, stats).status);
    allocated = static_cast<std::size_t>(stats.allocated_bytes.aggregate.current);
    reserved = static_cast<std::size_t>(stats.reserved_bytes.aggregate.current);
  }
  std::size_t allocated;
  std::size_t reserved;
};

c10::Device device_of(int device) {
  return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)};
}

bool is_out_of_memory(Status status) {
  return status == Status::OutOfMemory || status == Status::Rejected;
}

// `bytes` of the block at `ptr` came, or went where negative.
void tell_profiler(const ffi::Allocator& core, void* ptr, std::int64_t bytes, int device) {
  const Totals totals(core, device);
  c10::reportMemoryUsageToProfiler(ptr, bytes, totals.allocated, totals.reserved,
                                   device_of(device));
}

void delete_profiled(npualloc::Allocator& core, void* ptr) {
  const BlockView block = core.core().describe_block(reinterpret_cast<std::uintptr_t>(ptr));
  check(core.try_deallocate(ptr).status);
  if (block.status != Status::Ok) return;
  tell_profiler(core.core(), ptr, -static_cast<std::int64_t>(block.size), block.device);
}

void delete_block(void* ptr) {
  if (ptr == nullptr) return;
  DeviceAllocator* allocator = the_instance.load(std::memory_order_acquire);
  TORCH_INTERNAL_ASSERT(allocator != nullptr, "npualloc: freed after its allocator was destroyed");
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
    delete_profiled(allocator->core(), ptr);
    return;
  }
  check(allocator->core().try_deallocate(ptr).status);
}

AllocatorOptions checked(const AllocatorOptions& options) {
  TORCH_CHECK(
      the_instance.load(std::memory_order_acquire) == nullptr,
      "npualloc: another npualloc::c10_backend::DeviceAllocator exists already; a process can "
      "have one");
  return options;
}

npualloc::Allocator make_core(const DriverTable& table, const AllocatorOptions& options) {
  try {
    return npualloc::Allocator(table, checked(options));
  } catch (const Error& error) {
    throw_c10(error.status(), error.what());
  }
}

std::uintptr_t address(const c10::DataPtr& ptr) {
  return reinterpret_cast<std::uintptr_t>(ptr.get());
}

}  // namespace

DeviceAllocator::DeviceAllocator(Hooks& hooks, const DriverTable& table,
                                 const AllocatorOptions& options)
    : hooks_(hooks), table_(table), core_(make_core(table, options)) {
  DeviceAllocator* expected = nullptr;
  TORCH_CHECK(
      the_instance.compare_exchange_strong(expected, this),
      "npualloc: another npualloc::c10_backend::DeviceAllocator exists already; a process can "
      "have one");
}

DeviceAllocator::~DeviceAllocator() { the_instance.store(nullptr, std::memory_order_release); }

void DeviceAllocator::init(int device_count) { check(core_.core().init(device_count).status); }

bool DeviceAllocator::initialized() { return core_.device_count() > 0; }

c10::DataPtr DeviceAllocator::allocate(std::size_t bytes) {
  if (bytes >= kOneExaByte) throw_too_large();
  const c10::DeviceIndex device = hooks_.current_device();
  void* ptr = nullptr;
  if (bytes != 0) {
    const AllocOutcome outcome = core_.try_allocate(device, bytes, hooks_.current_stream(device));
    const bool profiled = c10::memoryProfilingEnabled();
    if (C10_UNLIKELY(profiled && is_out_of_memory(outcome.status))) {
      // Kept: the text of the failure is that of the thread's last call.
      const rust::String text = ffi::take_error_message();
      const Totals totals(core_.core(), device);
      c10::reportOutOfMemoryToProfiler(static_cast<std::int64_t>(bytes), totals.allocated,
                                       totals.reserved, device_of(device));
      throw_c10(outcome.status, std::string(text));
    }
    check(outcome.status);
    ptr = reinterpret_cast<void*>(outcome.addr);
    if (C10_UNLIKELY(profiled)) {
      const BlockView block = core_.core().describe_block(outcome.addr);
      check(block.status);
      tell_profiler(core_.core(), ptr, static_cast<std::int64_t>(block.size), device);
    }
  }
  return {ptr, ptr, &delete_block, device_of(device)};
}

c10::DeleterFnPtr DeviceAllocator::raw_deleter() const { return &delete_block; }

void DeviceAllocator::copy_data(void* dest, const void* src, std::size_t count) const {
  hooks_.copy(dest, src, count);
}

void DeviceAllocator::emptyCache(c10::MempoolId_t mempool_id) {
  const bool everything = mempool_id.first == 0 && mempool_id.second == 0;
  const ffi::MempoolId pool{mempool_id.first, mempool_id.second};
  for (int device = 0; device < core_.device_count(); ++device) {
    DeviceStats stats;
    check(core_.core().device_stats(device, stats).status);
    // A device never used is not touched: waiting for it would create its context. One without
    // reserved memory may hold physical memory still, which the driver would not take back; also
    // after the statistics were reset.
    const auto& reserved = stats.reserved_bytes.aggregate;
    const std::uint64_t bit = std::uint64_t{1} << (device % 64);
    const bool was_used = (used_devices_.load() & bit) != 0;
    if (reserved.current == 0 && reserved.allocated == 0 && !was_used) continue;
    used_devices_.fetch_or(bit);
    const Outcome outcome =
        everything ? core_.core().empty_cache(device, 0) : core_.core().empty_pool(device, pool, 0);
    check(outcome.status);
  }
}

void DeviceAllocator::recordStream(const c10::DataPtr& ptr, c10::Stream stream) {
  TORCH_CHECK(stream.device_type() == c10::DeviceType::PrivateUse1,
              "Expected a PrivateUse1 stream, got ", c10::DeviceTypeName(stream.device_type()));
  if (ptr.get() == nullptr || ptr.get_deleter() != &delete_block) return;
  const auto number = hooks_.number(stream);
  if (number.has_value()) {
    const BlockView view = core_.core().describe_block(address(ptr));
    // What is freed is used again behind the work of this stream anyway.
    if (view.status == Status::Ok && view.stream == *number &&
        view.device == stream.device_index()) {
      return;
    }
  }
  if (!core_.core().record_stream(address(ptr), hooks_.token(stream))) {
    check(ffi::last_failure().status);
  }
}

c10::CachingDeviceAllocator::DeviceStats DeviceAllocator::getDeviceStats(c10::DeviceIndex device) {
  Outcome outcome;
  auto stats = read_stats(core_.core(), device, outcome);
  check(outcome.status);
  return stats;
}

void DeviceAllocator::resetAccumulatedStats(c10::DeviceIndex device) {
  check(core_.core().reset_accumulated_stats(device).status);
}

void DeviceAllocator::resetPeakStats(c10::DeviceIndex device) {
  check(core_.core().reset_peak_stats(device).status);
}

std::pair<std::size_t, std::size_t> DeviceAllocator::getMemoryInfo(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < core_.device_count(), "Invalid device argument ",
              static_cast<int>(device), ": did you call init?");
  std::size_t free = 0;
  std::size_t total = 0;
  const std::int32_t code = table_.memory_info(table_.user, device, &free, &total);
  TORCH_CHECK(code == 0, "memory_info failed, error code is ", code);
  return {free, total};
}

}  // namespace npualloc::c10_backend
