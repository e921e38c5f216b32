// A device for tests: addresses from a counter, a capacity, events completed by hand.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "npualloc/driver_table.h"

namespace npualloc_test {

inline constexpr std::int32_t kOutOfMemory = 207001;
inline constexpr std::size_t kMiB = std::size_t{1} << 20;

// Not thread-safe: the tests that use it have one thread.
class FakeDevice {
 public:
  explicit FakeDevice(std::size_t capacity_bytes = 64 * kMiB) : capacity(capacity_bytes) {}

  npualloc::DriverTable table() {
    npualloc::DriverTable table{};
    table.user = this;
    table.malloc = [](void* user, std::int32_t device, std::size_t bytes, std::int32_t,
                      std::uintptr_t* addr) { return self(user).malloc(device, bytes, addr); };
    table.free = [](void* user, std::int32_t, std::uintptr_t addr) {
      return self(user).free(addr);
    };
    table.memory_info = [](void* user, std::int32_t device, std::size_t* free, std::size_t* total) {
      *free = self(user).capacity - self(user).used - self(user).used_by_others[device];
      *total = self(user).capacity;
      return 0;
    };
    table.synchronize_device = [](void* user, std::int32_t) {
      ++self(user).synchronizations;
      self(user).complete_all();
      return 0;
    };
    table.event_create = [](void* user, std::int32_t, std::uintptr_t* event) {
      *event = ++self(user).last_event;
      return 0;
    };
    table.event_destroy = [](void*, std::uintptr_t) { return 0; };
    table.event_record = [](void* user, std::uintptr_t event, npualloc::StreamToken stream) {
      self(user).pending.insert(event);
      self(user).recorded.push_back(stream);
      return 0;
    };
    table.event_query = [](void* user, std::uintptr_t event, std::int32_t* completed) {
      *completed = self(user).pending.count(event) == 0;
      return 0;
    };
    table.event_synchronize = [](void* user, std::uintptr_t event) {
      self(user).pending.erase(event);
      return 0;
    };
    table.run_free_callbacks = [](void*, std::int32_t, std::int32_t* freed) {
      *freed = 0;
      return 0;
    };
    table.release_external_caches = [](void*, std::int32_t) { return 0; };
    return table;
  }

  void complete_all() { pending.clear(); }

  std::size_t capacity;
  std::size_t used = 0;
  // By other processes; on each device.
  std::map<std::int32_t, std::size_t> used_by_others;
  int mallocs = 0;
  int frees = 0;
  int synchronizations = 0;
  // Non-zero: every malloc fails with it.
  std::int32_t malloc_code = 0;
  std::map<std::uintptr_t, std::size_t> held;
  // Where the next memory of device 0 begins.
  std::uintptr_t next = 0x100000000000;
  std::uintptr_t last_event = 0;
  std::set<std::uintptr_t> pending;
  std::vector<npualloc::StreamToken> recorded;

 private:
  static FakeDevice& self(void* user) { return *static_cast<FakeDevice*>(user); }

  std::int32_t malloc(std::int32_t device, std::size_t bytes, std::uintptr_t* addr) {
    if (malloc_code != 0) return malloc_code;
    if (bytes > capacity - used) return kOutOfMemory;
    ++mallocs;
    used += bytes;
    *addr = next + (static_cast<std::uintptr_t>(device) << 44);
    next += (bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
    held[*addr] = bytes;
    return 0;
  }

  std::int32_t free(std::uintptr_t addr) {
    const auto found = held.find(addr);
    if (found == held.end()) return 107000;
    ++frees;
    used -= found->second;
    held.erase(found);
    return 0;
  }
};

}  // namespace npualloc_test
