#include "convert.h"

#include <c10/util/Exception.h>

#include <stdexcept>

namespace npualloc::c10_backend {

namespace {

using C10Stats = c10::CachingDeviceAllocator::DeviceStats;
using C10Stat = c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatType;

C10Stat convert(const Stat& stat) {
  C10Stat converted;
  converted.current = stat.current;
  converted.peak = stat.peak;
  converted.allocated = stat.allocated;
  converted.freed = stat.freed;
  return converted;
}

c10::CachingAllocator::StatArray convert(const StatTriple& triple) {
  c10::CachingAllocator::StatArray converted;
  converted[static_cast<std::size_t>(StatType::AGGREGATE)] = convert(triple.aggregate);
  converted[static_cast<std::size_t>(StatType::SMALL_POOL)] = convert(triple.small_pool);
  converted[static_cast<std::size_t>(StatType::LARGE_POOL)] = convert(triple.large_pool);
  return converted;
}

// Counters that newer torch versions added.
template <typename Target>
void convert_newer(Target& target, const DeviceStats& stats) {
  if constexpr (requires { target.num_oom_rejections; }) {
    target.num_oom_rejections = stats.num_oom_rejections;
  }
}

template <typename Target>
void add_pools(Target& target, const rust::Vec<ffi::PoolReserved>& pools) {
  if constexpr (requires { target.reserved_bytes_by_private_pools; }) {
    for (const ffi::PoolReserved& pool : pools) {
      target.reserved_bytes_by_private_pools[{pool.pool.first, pool.pool.second}] =
          convert(pool.bytes);
    }
  }
}

}  // namespace

void throw_too_large() {
  TORCH_CHECK_WITH(OutOfMemoryError, false,
                   "NPU out of memory. Tried to allocate more than 1EB memory.");
}

void throw_c10(Status status) {
  const rust::String text = ffi::take_error_message();
  throw_c10(status, std::string(text.data(), text.size()));
}

void throw_c10(Status status, const std::string& message) {
  switch (status) {
    case Status::OutOfMemory:
    case Status::Rejected:
      TORCH_CHECK_WITH(OutOfMemoryError, false, message);
    case Status::NotSupported:
      TORCH_CHECK_NOT_IMPLEMENTED(false, message);
    case Status::Internal:
      TORCH_CHECK(false, "npualloc: internal error: ", message);
    case Status::DriverError:
      TORCH_CHECK(false, "NPU function error: ", message);
    case Status::ConfigValue:
      TORCH_CHECK_VALUE(false, message);
    case Status::ConfigNotANumber:
      throw std::invalid_argument(message);
    case Status::ConfigOutOfRange:
      throw std::out_of_range(message);
    case Status::ConfigRuntime:
    case Status::InvalidPointer:
    case Status::InvalidDevice:
    case Status::InvalidArgument:
    case Status::Ok:
      break;
  }
  TORCH_CHECK(false, message);
}

C10Stats convert(const DeviceStats& stats) {
  C10Stats converted;
  converted.allocation = convert(stats.allocation);
  converted.segment = convert(stats.segment);
  converted.active = convert(stats.active);
  converted.inactive_split = convert(stats.inactive_split);
  converted.allocated_bytes = convert(stats.allocated_bytes);
  converted.reserved_bytes = convert(stats.reserved_bytes);
  converted.active_bytes = convert(stats.active_bytes);
  converted.inactive_split_bytes = convert(stats.inactive_split_bytes);
  converted.requested_bytes = convert(stats.requested_bytes);
  converted.oversize_allocations = convert(stats.oversize_allocations);
  converted.oversize_segments = convert(stats.oversize_segments);
  converted.num_alloc_retries = stats.num_alloc_retries;
  converted.num_ooms = stats.num_ooms;
  converted.num_sync_all_streams = stats.num_sync_all_streams;
  converted.num_device_alloc = stats.num_device_alloc;
  converted.num_device_free = stats.num_device_free;
  converted.max_split_size = stats.max_split_size;
  convert_newer(converted, stats);
  return converted;
}

void add_private_pools(C10Stats& stats, const rust::Vec<ffi::PoolReserved>& pools) {
  add_pools(stats, pools);
}

}  // namespace npualloc::c10_backend
