// Memory of the device, physical memory and addresses, and what pools of their own allocators have.
#include <atomic>
#include <memory>

#include "../allocator/hccl.h"
#include "../allocator/ipc.h"
#include "../allocator/npu_allocator.h"
#include "../allocator/settings.h"
#include "calls.h"

namespace npualloc::torch_npu_plugin {

namespace {

// To the standard error, as torch_npu's own warnings: a program may turn Python's into exceptions,
// which would fail the request.
void warn_once(const char* text) {
  static std::atomic<bool> first{true};
  if (!first.exchange(false) || warnings_are_off()) return;
  const c10::SourceLocation here{__func__, __FILE__, __LINE__};
  c10::WarningHandler().process(c10::Warning(c10::UserWarning(), here, text, false));
}

std::int32_t malloc_fn(void*, std::int32_t device, std::size_t bytes, std::int32_t huge_1g,
                       std::uintptr_t* addr) {
  return guarded([&] {
    const DeviceScope scope(device);
    return acl::malloc_device(api(), bytes, huge_1g != 0, addr, &warn_once);
  });
}

std::int32_t free_fn(void*, std::int32_t device, std::uintptr_t addr) {
  return while_up([&] {
    const DeviceScope scope(device);
    exports().close_base(addr);
    return api().free(pointer(addr));
  });
}

std::int32_t memory_info_fn(void*, std::int32_t device, std::size_t* free, std::size_t* total) {
  return guarded([&] {
    const DeviceScope scope(device);
    return api().get_mem_info(acl::MemoryAttribute::Hbm, free, total);
  });
}

std::int32_t reserve_address_fn(void*, std::int32_t device, std::size_t bytes,
                                std::uintptr_t* addr) {
  return guarded([&] {
    const DeviceScope scope(device);
    void* ptr = nullptr;
    const acl::Code code =
        acl::told_by_code(api(), [&] { return api().reserve_address(&ptr, bytes, 0, nullptr, 1); });
    if (code != acl::kSuccess) return code;
    try {
      hccl_mirror().reserved(device, reinterpret_cast<std::uintptr_t>(ptr), bytes);
    } catch (...) {
      // The core takes an error for "nothing changed".
      (void)api().release_address(ptr);
      throw;
    }
    *addr = reinterpret_cast<std::uintptr_t>(ptr);
    return code;
  });
}

std::int32_t release_address_fn(void*, std::int32_t device, std::uintptr_t addr) {
  return while_up([&] {
    const DeviceScope scope(device);
    // Before the driver has the range back: then another thread may be given it.
    const std::size_t bytes = hccl_mirror().released(device, addr);
    const acl::Code code = api().release_address(pointer(addr));
    if (code != acl::kSuccess && bytes != 0) hccl_mirror().reserved(device, addr, bytes);
    return code;
  });
}

std::int32_t malloc_physical_fn(void*, std::int32_t device, std::size_t bytes, std::int32_t huge_1g,
                                std::uintptr_t* handle) {
  return guarded([&] {
    const DeviceScope scope(device);
    return acl::malloc_physical(api(), device, bytes, huge_1g != 0, handle, &warn_once);
  });
}

std::int32_t free_physical_fn(void*, std::int32_t device, std::uintptr_t handle) {
  return while_up([&] {
    exports().forget_handle(handle);
    const DeviceScope scope(device);
    return api().free_physical(pointer(handle));
  });
}

std::int32_t map_fn(void*, std::int32_t device, std::uintptr_t addr, std::size_t bytes,
                    std::uintptr_t handle) {
  return guarded([&] {
    const DeviceScope scope(device);
    // The core finds out at the start that one address is all there is.
    if (is_zero_copy_wanted() && hccl_mirror().is_mapped(device, handle)) return acl::kUnsupported;
    const acl::Code code = acl::told_by_code(
        api(), [&] { return api().map(pointer(addr), bytes, 0, pointer(handle), 0); });
    if (code != acl::kSuccess) return code;
    try {
      hccl_mirror().mapped(device, addr, bytes, handle);
    } catch (...) {
      (void)api().unmap(pointer(addr));
      throw;
    }
    return code;
  });
}

std::int32_t unmap_fn(void*, std::int32_t device, std::uintptr_t addr) {
  return while_up([&] {
    const DeviceScope scope(device);
    const acl::Code code = api().unmap(pointer(addr));
    if (code == acl::kSuccess) hccl_mirror().unmapped(device, addr);
    return code;
  });
}

std::shared_ptr<stock::NPUAllocator> pool_allocator(std::int32_t device, std::uint64_t first,
                                                    std::uint64_t second) {
  auto found = the_allocator.load()->pool_allocators().find(device, {first, second});
  TORCH_INTERNAL_ASSERT(found != nullptr, "npualloc: memory pool (", first, ", ", second,
                        ") has no allocator");
  return found;
}

std::int32_t pool_malloc_fn(void*, std::int32_t device, std::uint64_t first, std::uint64_t second,
                            std::size_t bytes, std::uintptr_t* addr) {
  return guarded([&] {
    const DeviceScope scope(device);
    // The core takes none for out of memory.
    void* ptr = pool_allocator(device, first, second)->raw_alloc(bytes);
    *addr = reinterpret_cast<std::uintptr_t>(ptr);
    return acl::kSuccess;
  });
}

std::int32_t pool_free_fn(void*, std::int32_t device, std::uint64_t first, std::uint64_t second,
                          std::uintptr_t addr) {
  return guarded([&] {
    const DeviceScope scope(device);
    exports().close_base(addr);
    pool_allocator(device, first, second)->raw_delete(pointer(addr));
    return acl::kSuccess;
  });
}

}  // namespace

void add_memory_functions(DriverTable& table) {
  table.malloc = &malloc_fn;
  table.free = &free_fn;
  table.memory_info = &memory_info_fn;
  table.pool_malloc = &pool_malloc_fn;
  table.pool_free = &pool_free_fn;
}

void add_virtual_memory_functions(DriverTable& table) {
  table.reserve_address = &reserve_address_fn;
  table.release_address = &release_address_fn;
  table.malloc_physical = &malloc_physical_fn;
  table.free_physical = &free_physical_fn;
  table.map = &map_fn;
  table.unmap = &unmap_fn;
}

}  // namespace npualloc::torch_npu_plugin
