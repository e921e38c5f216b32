// Memory of other processes, HCCL, damaged memory.
#include "probe.h"
#include "torch_npu/csrc/distributed/HCCLUtils.hpp"

using namespace npualloc_probe;

namespace {

Table<std::shared_ptr<void>>& opened() {
  static auto* made = new Table<std::shared_ptr<void>>;
  return *made;
}
std::mutex opened_mutex;
std::weak_ptr<void> last_closed;

std::mutex calls_mutex;
std::string calls;
int result_of_calls = 0;
// With a number only the call after so many.
std::optional<int> result_after;

// The handle that is active at an address: each can be exported once.
std::map<void*, aclrtDrvMemHandle> active;
constexpr HcclResult kAlreadyActive = static_cast<HcclResult>(5);

// With the alignment or offset, the flags, and whether a page's handle is that of the memory at its
// address.
HcclResult note_locked(const char* name, void* addr, size_t bytes, size_t offset = 0,
                       uint64_t flags = 0, bool fits = true) {
  if (result_of_calls != 0 && (!result_after || (*result_after)-- == 0)) {
    return static_cast<HcclResult>(result_of_calls);
  }
  std::ostringstream line;
  line << name << ' ' << reinterpret_cast<std::uintptr_t>(addr) << ' ' << bytes << ' ' << offset
       << ' ' << flags << ' ' << fits << '\n';
  calls += line.str();
  return HCCL_SUCCESS;
}

HcclResult note(const char* name, void* addr, size_t bytes, size_t offset = 0, uint64_t flags = 0) {
  const std::lock_guard<std::mutex> lock(calls_mutex);
  return note_locked(name, addr, bytes, offset, flags);
}

bool is_handle_of(void* addr, aclrtDrvMemHandle handle) {
  aclrtDrvMemHandle found = nullptr;
  if (aclrtMemRetainAllocationHandle(addr, &found) != ACL_ERROR_NONE) return false;
  aclrtFreePhysical(found);
  return found == handle;
}

}  // namespace

PROBE_EXPORT int probe_share(uint64_t addr, char* text, size_t* size, int64_t* offset) {
  return guarded([&] {
    const auto handle = allocator().shareIpcHandle(reinterpret_cast<void*>(addr));
    TORCH_CHECK(handle.handle.size() <= *size, "the probe's buffer is too small");
    *size = handle.handle.copy(text, *size);
    *offset = handle.offset;
  });
}
PROBE_EXPORT int probe_open(const char* text, size_t size, int64_t* number, uint64_t* addr) {
  return guarded([&] {
    auto ptr = allocator().getIpcDevPtr(std::string(text, size));
    *addr = reinterpret_cast<uint64_t>(ptr.get());
    const std::lock_guard<std::mutex> lock(opened_mutex);
    *number = opened().add(std::move(ptr));
  });
}
PROBE_EXPORT int probe_close(int64_t number) {
  return guarded([&] {
    std::shared_ptr<void> ptr;
    const std::lock_guard<std::mutex> lock(opened_mutex);
    ptr = std::move(opened().at(number));
    opened().remove(number);
    last_closed = ptr;
    // The lock is released first.
  });
}
// Whether the pointer closed last is being closed, or is closed.
PROBE_EXPORT int probe_close_began(int* began) {
  return guarded([&] {
    const std::lock_guard<std::mutex> lock(opened_mutex);
    *began = last_closed.expired();
  });
}

PROBE_EXPORT int probe_check_uce(int device, int* found) {
  return guarded([&] { *found = allocator().checkUceInMemPool(device); });
}
PROBE_EXPORT int probe_block_is_safe(int64_t block, int* safe) {
  return guarded([&] { *safe = allocator().checkBlockIsSafe(blocks().at(block)); });
}
PROBE_EXPORT int probe_mark_all_unsafe(int device) {
  return guarded([&] { allocator().markAllBlockUnsafe(device); });
}
PROBE_EXPORT int probe_update_to_safe(int64_t block) {
  return guarded([&] { allocator().updateBlockToSafe(blocks().at(block)); });
}

// HCCL's functions for zero-copy memory, found by name; they note what they are called with,
// unless they refuse.
PROBE_EXPORT HcclResult HcclCommSetMemoryRange(HcclComm, void* addr, size_t size, size_t alignment,
                                               uint64_t flags) {
  return note("range", addr, size, alignment, flags);
}
PROBE_EXPORT HcclResult HcclCommUnsetMemoryRange(HcclComm, void* addr) {
  return note("no_range", addr, 0);
}
PROBE_EXPORT HcclResult HcclCommActivateCommMemory(HcclComm, void* addr, size_t size, size_t offset,
                                                   aclrtDrvMemHandle handle, uint64_t flags) {
  const std::lock_guard<std::mutex> lock(calls_mutex);
  for (const auto& [where, other] : active) {
    if (other == handle) return kAlreadyActive;
  }
  const HcclResult result =
      note_locked("page", addr, size, offset, flags, is_handle_of(addr, handle));
  if (result == HCCL_SUCCESS) active[addr] = handle;
  return result;
}
PROBE_EXPORT HcclResult HcclCommDeactivateCommMemory(HcclComm, void* addr) {
  const std::lock_guard<std::mutex> lock(calls_mutex);
  active.erase(addr);
  return note_locked("no_page", addr, 0);
}
PROBE_EXPORT void probe_hccl_result(int result) {
  const std::lock_guard<std::mutex> lock(calls_mutex);
  result_of_calls = result;
  result_after.reset();
}
PROBE_EXPORT void probe_hccl_result_after(int result, int calls) {
  const std::lock_guard<std::mutex> lock(calls_mutex);
  result_of_calls = result;
  result_after = calls;
}
PROBE_EXPORT int probe_hccl_calls(char* text, size_t size) {
  const std::lock_guard<std::mutex> lock(calls_mutex);
  snprintf(text, size, "%s", calls.c_str());
  return calls.size() < size ? 0 : 1;
}
PROBE_EXPORT int probe_build_map(int device, int with_comm) {
  return guarded([&] {
    // Never destroyed: the communicator behind it does not exist.
    static int no_communicator = 0;
    auto comm = with_comm ? std::shared_ptr<c10d_npu::HCCLComm>(
                                new c10d_npu::HCCLComm(static_cast<HcclComm>(&no_communicator)),
                                [](c10d_npu::HCCLComm*) {})
                          : nullptr;
    allocator().buildServerMemMapForHccl(device, comm);
  });
}
