// The device allocator of a PrivateUse1 backend that is not torch_npu. The device is a stand-in:
// memory of this process, of which it claims to have 64 MiB.
#include <c10/util/Exception.h>
#include <npualloc/c10_allocator.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <mutex>

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::int32_t kMemoryExhausted = 207001;

// The backend's driver. Here one mutex protects it; a real one is a library with its own rules.
struct Device {
  std::mutex mutex;
  std::size_t capacity = 64 * kMiB;
  std::size_t used = 0;
  std::map<std::uintptr_t, std::size_t> sizes;

  static Device& of(void* user) { return *static_cast<Device*>(user); }
};

npualloc::DriverTable driver_table(Device& device) {
  npualloc::DriverTable table{};
  table.user = &device;
  table.malloc = [](void* user, std::int32_t, std::size_t bytes, std::int32_t,
                    std::uintptr_t* addr) {
    Device& device = Device::of(user);
    const std::lock_guard<std::mutex> lock(device.mutex);
    if (device.used + bytes > device.capacity) return kMemoryExhausted;
    void* memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
    if (memory == nullptr) return kMemoryExhausted;
    *addr = reinterpret_cast<std::uintptr_t>(memory);
    device.sizes[*addr] = bytes;
    device.used += bytes;
    return 0;
  };
  table.free = [](void* user, std::int32_t, std::uintptr_t addr) {
    Device& device = Device::of(user);
    const std::lock_guard<std::mutex> lock(device.mutex);
    device.used -= device.sizes.at(addr);
    device.sizes.erase(addr);
    std::free(reinterpret_cast<void*>(addr));
    return 0;
  };
  table.memory_info = [](void* user, std::int32_t, std::size_t* free, std::size_t* total) {
    Device& device = Device::of(user);
    const std::lock_guard<std::mutex> lock(device.mutex);
    *free = device.capacity - device.used;
    *total = device.capacity;
    return 0;
  };
  // Work completes at once here. A real backend records an event on the stream and asks it later.
  table.synchronize_device = [](void*, std::int32_t) { return 0; };
  table.event_create = [](void*, std::int32_t, std::uintptr_t* event) {
    *event = 1;
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

// What the backend knows of the calling thread.
class Hooks final : public npualloc::c10_backend::Hooks {
 public:
  c10::DeviceIndex current_device() override { return 0; }
  std::uintptr_t current_stream(c10::DeviceIndex) override { return 0; }
  void copy(void* dest, const void* src, std::size_t count) override {
    std::memcpy(dest, src, count);
  }
};

bool check(bool holds, const char* what) {
  std::cout << (holds ? "ok: " : "FAILED: ") << what << '\n';
  return holds;
}

}  // namespace

int main() {
  // Never destroyed: tensors are freed until the very end of a process.
  static auto* device = new Device;
  static auto* hooks = new Hooks;
  static auto* allocator =
      new npualloc::c10_backend::DeviceAllocator(*hooks, driver_table(*device));
  allocator->init(1);
  c10::SetAllocator(c10::DeviceType::PrivateUse1, allocator);

  // From here on as torch does it.
  c10::Allocator* torchs = c10::GetAllocator(c10::DeviceType::PrivateUse1);
  c10::DataPtr tensor = torchs->allocate(3 * kMiB);
  bool good = check(tensor.device().type() == c10::DeviceType::PrivateUse1, "on the device");
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  good &= check(allocator->getDeviceStats(0).allocated_bytes[kAll].current == 3 * kMiB,
                "3 MiB are allocated");

  const c10::Stream other(c10::Stream::UNSAFE, tensor.device(), 7);
  allocator->recordStream(tensor, other);
  tensor.clear();
  good &= check(allocator->getDeviceStats(0).allocated_bytes[kAll].current == 0, "freed");

  try {
    tensor = torchs->allocate(100 * kMiB);
    good = check(false, "100 MiB do not fit");
  } catch (const c10::OutOfMemoryError&) {
    good &= check(true, "100 MiB do not fit");
  }
  allocator->emptyCache();
  good &= check(device->used == 0, "an empty cache holds nothing");
  return good ? 0 : 1;
}
