// npualloc in a program without torch. The device is a stand-in: memory of this process, of which
// it claims to have 64 MiB. Where CANN is present, npualloc::AclDriver makes the table instead
// (npualloc/acl_driver.h).
#include <npualloc/allocator.h>

#include <cstdlib>
#include <iostream>

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::int32_t kMemoryExhausted = 207001;

struct Device {
  std::size_t capacity = 64 * kMiB;
  std::size_t used = 0;
  std::uintptr_t events = 0;
};

Device& self(void* user) { return *static_cast<Device*>(user); }

npualloc::DriverTable driver_table(Device& device) {
  npualloc::DriverTable table{};
  table.user = &device;
  // A header in front of each allocation keeps its size; 512 bytes keep the device's alignment.
  constexpr std::size_t kHeader = 512;
  table.malloc = [](void* user, std::int32_t, std::size_t bytes, std::int32_t,
                    std::uintptr_t* addr) {
    if (self(user).used + bytes > self(user).capacity) return kMemoryExhausted;
    void* memory = std::aligned_alloc(512, kHeader + (bytes + 511) / 512 * 512);
    if (memory == nullptr) return kMemoryExhausted;
    *static_cast<std::size_t*>(memory) = bytes;
    *addr = reinterpret_cast<std::uintptr_t>(memory) + kHeader;
    self(user).used += bytes;
    return 0;
  };
  table.free = [](void* user, std::int32_t, std::uintptr_t addr) {
    void* memory = reinterpret_cast<void*>(addr - kHeader);
    self(user).used -= *static_cast<std::size_t*>(memory);
    std::free(memory);
    return 0;
  };
  table.memory_info = [](void* user, std::int32_t, std::size_t* free, std::size_t* total) {
    *free = self(user).capacity - self(user).used;
    *total = self(user).capacity;
    return 0;
  };
  // Nothing runs asynchronously here: every event has completed.
  table.synchronize_device = [](void*, std::int32_t) { return 0; };
  table.event_create = [](void* user, std::int32_t, std::uintptr_t* event) {
    *event = ++self(user).events;
    return 0;
  };
  table.event_destroy = [](void*, std::uintptr_t) { return 0; };
  table.event_record = [](void*, std::uintptr_t, npualloc::StreamToken) { return 0; };
  table.event_query = [](void*, std::uintptr_t, std::int32_t* completed) {
    *completed = 1;
    return 0;
  };
  table.event_synchronize = [](void*, std::uintptr_t) { return 0; };
  table.run_free_callbacks = [](void*, std::int32_t, std::int32_t* freed) {
    *freed = 0;
    return 0;
  };
  table.release_external_caches = [](void*, std::int32_t) { return 0; };
  return table;
}

bool check(bool holds, const char* what) {
  std::cout << (holds ? "ok: " : "FAILED: ") << what << '\n';
  return holds;
}

}  // namespace

int main() {
  Device device;
  npualloc::Allocator allocator(driver_table(device));
  allocator.init(1);

  void* first = allocator.allocate(0, 3 * kMiB);
  const auto stats = allocator.stats(0);
  bool good = check(stats.allocated_bytes.aggregate.current == 3 * kMiB, "3 MiB are allocated");
  good &= check(stats.reserved_bytes.aggregate.current == 20 * kMiB, "20 MiB are reserved");

  allocator.deallocate(first);
  good &= check(allocator.allocate(0, 3 * kMiB) == first, "freed memory is used again");

  try {
    allocator.allocate(0, 100 * kMiB);
    good = check(false, "100 MiB do not fit");
  } catch (const npualloc::OutOfMemory& error) {
    good &= check(error.report().device_total == 64 * kMiB, "100 MiB do not fit");
  }

  allocator.deallocate(first);
  allocator.empty_cache(0);
  good &= check(device.used == 0, "an empty cache holds nothing");
  return good ? 0 : 1;
}
