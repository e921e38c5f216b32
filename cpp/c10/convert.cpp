#include "convert.h"

#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>

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
void convert_newer(Target& target, const ffi::StatRest& stats) {
  if constexpr (requires { target.num_oom_rejections; }) {
    target.num_oom_rejections = stats.num_oom_rejections;
  }
}

using c10::CachingAllocator::StatArray;

static_assert(sizeof(C10Stat) == sizeof(ffi::Stat) && offsetof(C10Stat, current) == 0 &&
              offsetof(C10Stat, peak) == offsetof(ffi::Stat, peak) &&
              offsetof(C10Stat, allocated) == offsetof(ffi::Stat, allocated) &&
              offsetof(C10Stat, freed) == offsetof(ffi::Stat, freed));
static_assert(sizeof(StatArray) == sizeof(ffi::StatTriple) &&
              static_cast<std::size_t>(StatType::AGGREGATE) == 0 &&
              static_cast<std::size_t>(StatType::SMALL_POOL) == 1 &&
              static_cast<std::size_t>(StatType::LARGE_POOL) == 2);
// The struct has a hash map among its members, which leaves it to the compiler whether offsets may
// be asked for; all that torch_npu is built with allow it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
template <std::size_t... members>
constexpr bool are_side_by_side(std::size_t size, std::index_sequence<members...>,
                                const std::size_t (&offsets)[sizeof...(members)]) {
  return ((offsets[members] == offsets[0] + members * size) && ...);
}
static_assert(are_side_by_side(sizeof(StatArray), std::make_index_sequence<6>(),
                               {offsetof(C10Stats, allocation), offsetof(C10Stats, segment),
                                offsetof(C10Stats, active), offsetof(C10Stats, inactive_split),
                                offsetof(C10Stats, allocated_bytes),
                                offsetof(C10Stats, reserved_bytes)}));
static_assert(are_side_by_side(sizeof(StatArray), std::make_index_sequence<3>(),
                               {offsetof(C10Stats, active_bytes),
                                offsetof(C10Stats, inactive_split_bytes),
                                offsetof(C10Stats, requested_bytes)}));
constexpr std::size_t behind(std::size_t member) {
  return member - offsetof(C10Stats, active_bytes);
}
static_assert(
    behind(offsetof(C10Stats, num_alloc_retries)) == offsetof(ffi::StatBack, num_alloc_retries) &&
    behind(offsetof(C10Stats, num_ooms)) == offsetof(ffi::StatBack, num_ooms) &&
    behind(offsetof(C10Stats, oversize_allocations)) ==
        offsetof(ffi::StatBack, oversize_allocations) &&
    behind(offsetof(C10Stats, oversize_segments)) == offsetof(ffi::StatBack, oversize_segments) &&
    behind(offsetof(C10Stats, num_sync_all_streams)) ==
        offsetof(ffi::StatBack, num_sync_all_streams) &&
    behind(offsetof(C10Stats, num_device_alloc)) == offsetof(ffi::StatBack, num_device_alloc) &&
    behind(offsetof(C10Stats, num_device_free)) == offsetof(ffi::StatBack, num_device_free));
#pragma GCC diagnostic pop

// What lies at `place`, as the core names it.
template <typename Core, typename Torch>
Core& as_core(Torch& place) {
  return *static_cast<Core*>(static_cast<void*>(&place));
}
static_assert(sizeof(ffi::StatFront) == 6 * sizeof(StatArray) &&
              sizeof(ffi::StatBack::of) == 3 * sizeof(StatArray) &&
              sizeof(ffi::StatBack) ==
                  offsetof(ffi::StatBack, num_device_free) + sizeof(std::int64_t));

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

void throw_too_large() { TORCH_CHECK_WITH(OutOfMemoryError, false, kTooLarge); }

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
    case Status::Damage:
    case Status::ConfigRuntime:
    case Status::InvalidPointer:
    case Status::InvalidDevice:
    case Status::InvalidArgument:
    case Status::Ok:
      break;
  }
  TORCH_CHECK(false, message);
}

// The core writes into torch's struct: both describe a statistic by the same four numbers in the
// same order, and torch's members lie side by side in two groups. Its constructor left zeros.
C10Stats read_stats(const ffi::Allocator& core, int device, Outcome& outcome) {
  C10Stats stats;
  ffi::StatRest rest;
  const bool done = core.device_stats_in_place(device, as_core<ffi::StatFront>(stats.allocation),
                                               as_core<ffi::StatBack>(stats.active_bytes), rest);
  outcome = done ? Outcome{Status::Ok, 0} : ffi::last_failure();
  if (!done) return stats;
  stats.max_split_size = rest.max_split_size;
  convert_newer(stats, rest);
  if (rest.private_pools != 0) add_pools(stats, core.reserved_by_pool(device));
  return stats;
}

}  // namespace npualloc::c10_backend
