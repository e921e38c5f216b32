// Allocation, streams, caches.
#include <cxxabi.h>

#include <exception>
#include <thread>
#include <typeinfo>

#include "probe.h"

using namespace npualloc_probe;

namespace {

thread_local std::string error_type;
thread_local std::string error_text;

void* pointer(std::uint64_t addr) { return reinterpret_cast<void*>(addr); }

}  // namespace

namespace npualloc_probe {

void keep_exception() {
  try {
    throw;
  } catch (const c10::Error& error) {
    error_text = error.what_without_backtrace();
  } catch (const std::exception& error) {
    error_text = error.what();
  }
  int status = 0;
  char* name =
      abi::__cxa_demangle(abi::__cxa_current_exception_type()->name(), nullptr, nullptr, &status);
  error_type = name != nullptr ? name : "unknown";
  free(name);
}

Table<c10::DataPtr>& blocks() {
  static auto* made = new Table<c10::DataPtr>;
  return *made;
}

c10_npu::NPUStream stream_of(int device, std::int64_t id) {
  return c10_npu::NPUStream(
      c10_npu::NPUStream::UNCHECKED,
      c10::Stream(c10::Stream::UNSAFE,
                  c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)),
                  id));
}

}  // namespace npualloc_probe

PROBE_EXPORT const char* probe_error_type() { return error_type.c_str(); }
PROBE_EXPORT const char* probe_error_text() { return error_text.c_str(); }

PROBE_EXPORT int probe_name(char* name, size_t size) {
  return guarded([&] { snprintf(name, size, "%s", allocator().name().c_str()); });
}
PROBE_EXPORT int probe_initialized(int* yes) {
  return guarded([&] { *yes = allocator().initialized(); });
}

// Blocks held as torch holds them.
PROBE_EXPORT int probe_allocate(size_t bytes, int64_t* block) {
  return guarded([&] { *block = blocks().add(allocator().allocate(bytes)); });
}
PROBE_EXPORT int probe_allocate_with_aligned(size_t bytes, size_t kib, int64_t* block) {
  return guarded([&] { *block = blocks().add(allocator().allocate_with_aligned(bytes, kib)); });
}
// The data's address, the context's, the device, and whether raw_deleter() is the deleter.
PROBE_EXPORT int probe_block(int64_t block, uint64_t* data, uint64_t* context, int* device,
                             int* raw) {
  return guarded([&] {
    const c10::DataPtr& ptr = blocks().at(block);
    *data = reinterpret_cast<uint64_t>(ptr.get());
    *context = reinterpret_cast<uint64_t>(ptr.get_context());
    *device = ptr.device().index();
    *raw = ptr.get_deleter() == allocator().raw_deleter();
  });
}
PROBE_EXPORT int probe_free(int64_t block) {
  return guarded([&] { blocks().remove(block); });
}
// A block that no allocator made: memory of the host.
PROBE_EXPORT int probe_foreign(int64_t* block) {
  return guarded([&] {
    static char bytes[64];
    *block = blocks().add({bytes, c10::Device(c10::DeviceType::PrivateUse1, 0)});
  });
}

PROBE_EXPORT int probe_raw_alloc(size_t bytes, uint64_t* addr) {
  return guarded([&] { *addr = reinterpret_cast<uint64_t>(allocator().raw_alloc(bytes)); });
}
PROBE_EXPORT int probe_raw_alloc_with_stream(size_t bytes, uint64_t stream, uint64_t* addr) {
  return guarded([&] {
    *addr = reinterpret_cast<uint64_t>(
        allocator().raw_alloc_with_stream(bytes, static_cast<aclrtStream>(pointer(stream))));
  });
}
PROBE_EXPORT int probe_raw_delete(uint64_t addr) {
  return guarded([&] { allocator().raw_delete(pointer(addr)); });
}
PROBE_EXPORT int probe_raw_deleter(uint64_t addr) {
  return guarded([&] { allocator().raw_deleter()(pointer(addr)); });
}
PROBE_EXPORT int probe_copy_data(uint64_t to, uint64_t from, size_t bytes) {
  return guarded([&] { allocator().copy_data(pointer(to), pointer(from), bytes); });
}
PROBE_EXPORT int probe_base_allocation(uint64_t addr, uint64_t* base, size_t* bytes) {
  return guarded([&] {
    *base = reinterpret_cast<uint64_t>(allocator().getBaseAllocation(pointer(addr), bytes));
  });
}

// The size is not asked for.
PROBE_EXPORT int probe_base_address(uint64_t addr, uint64_t* base) {
  return guarded([&] {
    *base = reinterpret_cast<uint64_t>(allocator().getBaseAllocation(pointer(addr), nullptr));
  });
}

// On a thread that runs no Python, whatever the caller holds meanwhile.
PROBE_EXPORT int probe_allocate_elsewhere(int device, size_t bytes) {
  return guarded([&] {
    std::exception_ptr failure;
    std::thread([&] {
      try {
        NPU_CHECK_ERROR(c10_npu::SetDevice(static_cast<c10::DeviceIndex>(device)));
        allocator().raw_delete(allocator().raw_alloc(bytes));
      } catch (...) {
        failure = std::current_exception();
      }
    }).join();
    if (failure) std::rethrow_exception(failure);
  });
}

PROBE_EXPORT int probe_record_stream(int64_t block, int device, int64_t stream) {
  return guarded([&] { allocator().recordStream(blocks().at(block), stream_of(device, stream)); });
}
// Through c10::DeviceAllocator, with a stream of any device type.
PROBE_EXPORT int probe_record_c10_stream(int64_t block, int cpu, int64_t stream) {
  return guarded([&] {
    const auto type = cpu ? c10::DeviceType::CPU : c10::DeviceType::PrivateUse1;
    c10::DeviceAllocator& base = allocator();
    base.recordStream(blocks().at(block),
                      c10::Stream(c10::Stream::UNSAFE, c10::Device(type, 0), stream));
  });
}
PROBE_EXPORT int probe_erase_stream(int64_t block, int device, int64_t stream) {
  return guarded([&] { allocator().eraseStream(blocks().at(block), stream_of(device, stream)); });
}
PROBE_EXPORT int probe_block_ptr(int64_t block, uint64_t* ptr) {
  return guarded(
      [&] { *ptr = reinterpret_cast<uint64_t>(allocator().getBlockPtr(blocks().at(block))); });
}
PROBE_EXPORT int probe_record_work(uint64_t block_ptr, uint64_t work) {
  return guarded([&] { allocator().recordHcclWorkForBlock(pointer(block_ptr), pointer(work)); });
}
PROBE_EXPORT int probe_erase_work(uint64_t block_ptr, int device, int64_t stream, uint64_t work) {
  return guarded([&] {
    allocator().eraseStreamWithBlockPtr(pointer(block_ptr), stream_of(device, stream),
                                        pointer(work));
  });
}
PROBE_EXPORT int probe_clean_event() {
  return guarded([&] { allocator().cleanEvent(); });
}

PROBE_EXPORT int probe_cache_info(int device, size_t* total, size_t* largest) {
  return guarded([&] { allocator().cacheInfo(device, total, largest); });
}
PROBE_EXPORT int probe_empty_pool(uint64_t first, uint64_t second) {
  return guarded([&] { allocator().emptyCache(c10_npu::MempoolId_t{first, second}); });
}
PROBE_EXPORT int probe_empty_cache(int check_error) {
  return guarded([&] { allocator().emptyCache(check_error != 0); });
}
PROBE_EXPORT int probe_empty_cache_impl(int check_error, int free_physical) {
  return guarded([&] { allocator().emptyCacheImpl(check_error != 0, free_physical != 0); });
}
PROBE_EXPORT int probe_empty_virt_addr_cache(int check_error) {
  return guarded([&] { allocator().emptyVirtAddrCache(check_error != 0); });
}
PROBE_EXPORT int probe_free_device_cached_memory(int device) {
  return guarded([&] { allocator().FreeDeviceCachedMemory(device); });
}
PROBE_EXPORT int probe_memory_info(int device, size_t* free, size_t* total) {
  return guarded([&] {
    const auto pair = allocator().getMemoryInfo(static_cast<c10::DeviceIndex>(device));
    *free = pair.first;
    *total = pair.second;
  });
}
