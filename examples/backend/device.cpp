#include "device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace toy {

namespace {

// The code that means "no memory left"; npualloc frees what it can and tries again. Every other
// code but 0 is a failure, and ends up in a c10::Error.
constexpr int kMemoryExhausted = 207001;
constexpr int kFailure = 1;

Device& of(void* self) { return *static_cast<Device*>(self); }
void* pointer(std::uintptr_t addr) { return reinterpret_cast<void*>(addr); }
std::uintptr_t number(void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

}  // namespace

bool Device::take(std::size_t bytes) {
  if (bytes > capacity_ - used_) return false;
  used_ += bytes;
  return true;
}

int Device::malloc(void* self, int, std::size_t bytes, int, std::uintptr_t* addr) {
  Device& device = of(self);
  const std::lock_guard<std::mutex> lock(device.mutex_);
  if (!device.take(bytes)) return kMemoryExhausted;
  void* memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  if (memory == nullptr) {
    device.used_ -= bytes;
    return kMemoryExhausted;
  }
  *addr = number(memory);
  device.plain_[*addr] = bytes;
  return 0;
}

int Device::free(void* self, int, std::uintptr_t addr) {
  Device& device = of(self);
  const std::lock_guard<std::mutex> lock(device.mutex_);
  device.used_ -= device.plain_.at(addr);
  device.plain_.erase(addr);
  std::free(pointer(addr));
  return 0;
}

int Device::memory_info(void* self, int, std::size_t* free_bytes, std::size_t* total_bytes) {
  Device& device = of(self);
  const std::lock_guard<std::mutex> lock(device.mutex_);
  *free_bytes = device.capacity_ - device.used_;
  *total_bytes = device.capacity_;
  return 0;
}

// Virtual memory, for expandable_segments:True. A backend without it leaves these functions out.

int Device::reserve_address(void* self, int, std::size_t bytes, std::uintptr_t* addr) {
  void* range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return kFailure;
  *addr = number(range);
  const std::lock_guard<std::mutex> lock(of(self).mutex_);
  of(self).reserved_[*addr] = bytes;
  return 0;
}

int Device::release_address(void* self, int, std::uintptr_t addr) {
  const std::lock_guard<std::mutex> lock(of(self).mutex_);
  munmap(pointer(addr), of(self).reserved_.at(addr));
  of(self).reserved_.erase(addr);
  return 0;
}

int Device::malloc_physical(void* self, int, std::size_t bytes, int, std::uintptr_t* handle) {
  Device& device = of(self);
  const std::lock_guard<std::mutex> lock(device.mutex_);
  const int file = memfd_create("toy", MFD_CLOEXEC);
  if (file < 0) return kFailure;
  const bool sized = ftruncate(file, static_cast<off_t>(bytes)) == 0;
  if (!sized || !device.take(bytes)) {
    close(file);
    return sized ? kMemoryExhausted : kFailure;
  }
  *handle = static_cast<std::uintptr_t>(file);
  device.physical_[*handle] = bytes;
  return 0;
}

int Device::free_physical(void* self, int, std::uintptr_t handle) {
  Device& device = of(self);
  const std::lock_guard<std::mutex> lock(device.mutex_);
  device.used_ -= device.physical_.at(handle);
  device.physical_.erase(handle);
  close(static_cast<int>(handle));
  return 0;
}

int Device::map(void* self, int, std::uintptr_t addr, std::size_t bytes, std::uintptr_t handle) {
  void* mapped = mmap(pointer(addr), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                      static_cast<int>(handle), 0);
  if (mapped == MAP_FAILED) return kFailure;
  const std::lock_guard<std::mutex> lock(of(self).mutex_);
  of(self).mapped_[addr] = bytes;
  return 0;
}

int Device::unmap(void* self, int, std::uintptr_t addr) {
  const std::lock_guard<std::mutex> lock(of(self).mutex_);
  mmap(pointer(addr), of(self).mapped_.at(addr), PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  of(self).mapped_.erase(addr);
  return 0;
}

npualloc::DriverTable Device::table() {
  npualloc::DriverTable table{};
  table.user = this;
  table.malloc = malloc;
  table.free = free;
  table.memory_info = memory_info;
  table.reserve_address = reserve_address;
  table.release_address = release_address;
  table.malloc_physical = malloc_physical;
  table.free_physical = free_physical;
  table.map = map;
  table.unmap = unmap;

  // Work is done at once here, so an event has nothing to wait for. A real backend records its
  // events on the stream and asks them later.
  table.synchronize_device = [](void*, std::int32_t) { return 0; };
  table.event_create = [](void*, std::int32_t, std::uintptr_t* event) {
    *event = 1;
    return 0;
  };
  table.event_destroy = [](void*, std::uintptr_t) { return 0; };
  table.event_record = [](void*, std::uintptr_t, npualloc::StreamToken) { return 0; };
  table.event_record_fence = [](void*, std::int32_t, std::uintptr_t, std::uintptr_t) { return 0; };
  table.event_query = [](void*, std::uintptr_t, std::int32_t* completed) {
    *completed = 1;
    return 0;
  };
  table.event_synchronize = [](void*, std::uintptr_t) { return 0; };

  // Nobody else holds memory that could be freed.
  table.run_free_callbacks = [](void*, std::int32_t, std::int32_t* freed) {
    *freed = 0;
    return 0;
  };
  table.release_external_caches = [](void*, std::int32_t) { return 0; };
  return table;
}

}  // namespace toy
