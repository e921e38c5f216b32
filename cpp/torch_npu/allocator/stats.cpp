// Statistics, the memory limit, and giving cached memory back.
#include "../../c10/convert.h"
#include "../driver/driver.h"
#include "npu_allocator.h"
#include "recording.h"

namespace npualloc::torch_npu_plugin {

namespace {

// Devices that have held memory: physical pages may be idle there although nothing is mapped, also
// after the statistics were reset.
std::atomic<std::uint64_t> used_devices{0};

std::uint64_t bit(int device) { return std::uint64_t{1} << (device % 64); }
bool was_used(int device) { return (used_devices.load() & bit(device)) != 0; }

}  // namespace

void note_used(int device) { used_devices.fetch_or(bit(device)); }

stock::DeviceStats NpuAllocator::getDeviceStats(c10::DeviceIndex device) {
  Outcome outcome;
  stock::DeviceStats stats = c10_backend::read_stats(core(), device, outcome);
  if (C10_UNLIKELY(outcome.status != Status::Ok)) {
    assert_valid_device(device);
    check(outcome);
  }
  return stats;
}

void NpuAllocator::resetAccumulatedStats(c10::DeviceIndex device) {
  assert_valid_device(device);
  check(core().reset_accumulated_stats(device));
}

void NpuAllocator::resetPeakStats(c10::DeviceIndex device) {
  assert_valid_device(device);
  check(core().reset_peak_stats(device));
}

void NpuAllocator::cacheInfo(int device, size_t* cached_and_free, size_t* largest_block) {
  assert_valid_device(device);
  const CacheInfo info = core().cache_info(device);
  check(info.status, 0);
  // The stock allocator adds to what the caller passes in.
  *cached_and_free += info.total;
  *largest_block = std::max(*largest_block, info.largest);
}

double NpuAllocator::getMemoryFraction(int device) {
  assert_initialized_device(device);
  NPU_CHECK_ERROR(c10_npu::SetDevice(static_cast<c10::DeviceIndex>(device)));
  const ffi::FractionOutcome outcome = core().memory_fraction(device);
  check(outcome.status, outcome.code);
  return outcome.value;
}

void NpuAllocator::setMemoryFraction(double fraction, int device) {
  assert_initialized_device(device);
  TORCH_INTERNAL_ASSERT(0 <= fraction && fraction <= 1, "invalid fraction:", fraction,
                        ". Please set within (0, 1).", PTA_ERROR(ErrCode::PARAM));
  NPU_CHECK_ERROR(c10_npu::SetDevice(static_cast<c10::DeviceIndex>(device)));
  check(core().set_memory_fraction(device, fraction));
}

void NpuAllocator::emptyCache(c10_npu::MempoolId_t mempool_id) {
  const bool everything = mempool_id.first == 0 && mempool_id.second == 0;
  for_each_used_device(true, [&](int device) {
    const std::uintptr_t context = contexts_.gather(stock::RecordContext::ALL);
    return everything ? core().empty_cache(device, context)
                      : core().empty_pool(device, to_ffi(mempool_id), context);
  });
}

void NpuAllocator::emptyCache(bool check_error) { emptyCacheImpl(check_error, true); }

void NpuAllocator::emptyCacheImpl(bool check_error, bool free_physical) {
  if (check_error) raise_untold();
  for_each_used_device(check_error, [&](int device) {
    const std::uintptr_t context = contexts_.gather(stock::RecordContext::ALL);
    return free_physical ? core().empty_cache(device, context)
                         : core().empty_virtual_cache(device, context);
  });
}

void NpuAllocator::for_each_used_device(bool check_error,
                                        const std::function<Outcome(int)>& empty) {
  const CheckErrorScope scope(check_error);
  for (int device = 0; device < core().device_count(); ++device) {
    DeviceStats stats;
    check(core().device_stats(device, stats));
    // A device never used is not touched: waiting for it would create its context.
    const auto& reserved = stats.reserved_bytes.aggregate;
    if (reserved.current == 0 && reserved.allocated == 0 && !was_used(device)) continue;
    note_used(device);
    const Outcome outcome = empty(device);
    if (recording::on()) recording::emptied(device);
    if (check_error) check(outcome);
    if (outcome.status != Status::Ok) {
      const rust::String text = ffi::take_error_message();
      TORCH_WARN("npualloc: emptying the cache of device ", device,
                 " failed: ", std::string(text.data(), text.size()));
    }
    deliver_trace();
  }
  pool_allocators_.sweep(core());
}

void NpuAllocator::emptyVirtAddrCache(bool check_error) {
  TORCH_CHECK(c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments(),
              "Unsupported config for empty_virt_addr_cache, please enable expandable_segments.");
  emptyCacheImpl(check_error, false);
}

void NpuAllocator::FreeDeviceCachedMemory(int device) {
  assert_valid_device(device);
  const Outcome outcome = core().empty_cache(device, contexts_.gather(stock::RecordContext::ALL));
  if (recording::on()) recording::emptied(device);
  check(outcome);
  deliver_trace();
}

}  // namespace npualloc::torch_npu_plugin
