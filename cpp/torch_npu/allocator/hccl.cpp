#include "hccl.h"

#include <dlfcn.h>

#include <cstdlib>

#include "npu_allocator.h"
#include "torch_npu/csrc/distributed/HCCLUtils.hpp"

namespace npualloc::torch_npu_plugin {

namespace {

constexpr const char* kUnset = "HcclCommUnsetMemoryRange";
constexpr const char* kDeactivate = "HcclCommDeactivateCommMemory";

// Older HCCL lacks these functions, and torch_npu, too, looks them up when they are first needed.
template <typename Function>
Function hccl_function(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) {
    static void* library = dlopen("libhccl.so", RTLD_NOW | RTLD_NOLOAD);
    if (library != nullptr) found = dlsym(library, name);
  }
  TORCH_CHECK(found != nullptr, "Failed to find function ", name,
              ", maybe you cann version is too low, please upgrade it",
              DIST_ERROR(ErrCode::NOT_FOUND));
  return reinterpret_cast<Function>(found);
}

void* pointer(std::uintptr_t addr) { return reinterpret_cast<void*>(addr); }

void set_range(HcclComm comm, std::uintptr_t range, std::size_t bytes) {
  using Set = HcclResult (*)(HcclComm, void*, size_t, size_t, uint64_t);
  HCCL_CHECK_ERROR(hccl_function<Set>("HcclCommSetMemoryRange")(comm, pointer(range), bytes, 0, 1),
                   "HcclCommSetMemoryRange");
}

HcclResult forget(HcclComm comm, std::uintptr_t addr, const char* name) {
  if (comm == nullptr) return HCCL_SUCCESS;
  using Function = HcclResult (*)(HcclComm, void*);
  return hccl_function<Function>(name)(comm, pointer(addr));
}

// The memory goes whatever HCCL says: failures are warnings. Not with a lock: Python may be called,
// whose own lock another thread holds that waits for this one.
void warn_unless(HcclResult result, const char* name) {
  if (result != HCCL_SUCCESS) TORCH_WARN("npualloc: ", name, " failed, error code is ", result);
}

void activate(HcclComm comm, std::uintptr_t page, std::size_t bytes, std::uintptr_t handle) {
  using Activate = HcclResult (*)(HcclComm, void*, size_t, size_t, aclrtDrvMemHandle, uint64_t);
  HCCL_CHECK_ERROR(
      hccl_function<Activate>("HcclCommActivateCommMemory")(
          comm, pointer(page), bytes, 0, reinterpret_cast<aclrtDrvMemHandle>(pointer(handle)), 0),
      "HcclCommActivateCommMemory");
}

}  // namespace

void HcclMirror::reserved(int device, std::uintptr_t range, std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Device& state = devices_[device];
  if (state.comm != nullptr) set_range(state.comm, range, bytes);
  state.ranges[range] = bytes;
}

std::size_t HcclMirror::released(int device, std::uintptr_t range) {
  std::unique_lock<std::mutex> lock(mutex_);
  Device& state = devices_[device];
  const auto found = state.ranges.find(range);
  if (found == state.ranges.end()) return 0;
  const std::size_t bytes = found->second;
  state.ranges.erase(found);
  const HcclResult result = forget(state.comm, range, kUnset);
  lock.unlock();
  warn_unless(result, kUnset);
  return bytes;
}

void HcclMirror::mapped(int device, std::uintptr_t page, std::size_t bytes, std::uintptr_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Device& state = devices_[device];
  if (state.comm != nullptr) activate(state.comm, page, bytes, handle);
  state.pages[page] = {bytes, handle};
  ++state.handles[handle];
}

void HcclMirror::unmapped(int device, std::uintptr_t page) {
  std::unique_lock<std::mutex> lock(mutex_);
  Device& state = devices_[device];
  const auto found = state.pages.find(page);
  if (found == state.pages.end()) return;
  const auto handle = state.handles.find(found->second.handle);
  if (--handle->second == 0) state.handles.erase(handle);
  state.pages.erase(found);
  const HcclResult result = forget(state.comm, page, kDeactivate);
  lock.unlock();
  warn_unless(result, kDeactivate);
}

bool HcclMirror::is_mapped(int device, std::uintptr_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return devices_[device].handles.contains(handle);
}

void HcclMirror::attach(int device, std::shared_ptr<c10d_npu::HCCLComm> comm) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Device& state = devices_[device];
  // Named as in the stock allocator, whose texts contain the conditions.
  const auto& hcclComm_ = state.owner;
  const auto& hcclComm = comm;
  TORCH_INTERNAL_ASSERT(!hcclComm_, "Build HCCL server group redundancy.",
                        PTA_ERROR(ErrCode::INTERNAL));
  TORCH_INTERNAL_ASSERT(hcclComm, "hcclComm is null.", PTA_ERROR(ErrCode::INTERNAL));
  HcclComm handle = comm->getHcclComm();
  auto range = state.ranges.cbegin();
  auto page = state.pages.cbegin();
  try {
    for (; range != state.ranges.cend(); ++range) set_range(handle, range->first, range->second);
    for (; page != state.pages.cend(); ++page) {
      activate(handle, page->first, page->second.bytes, page->second.handle);
    }
  } catch (...) {
    // What HCCL knows would stay known for good, and be told again by another try.
    while (page != state.pages.cbegin()) (void)forget(handle, (--page)->first, kDeactivate);
    while (range != state.ranges.cbegin()) (void)forget(handle, (--range)->first, kUnset);
    throw;
  }
  state.comm = handle;
  state.owner = std::move(comm);
}

HcclMirror& hccl_mirror() {
  // Never destroyed: memory is unmapped until the very end of the process.
  static auto* made = new HcclMirror;
  return *made;
}

bool is_zero_copy_wanted() {
  static const bool wanted = [] {
    const char* text = std::getenv("TORCH_HCCL_ZERO_COPY");
    return text != nullptr && std::strtol(text, nullptr, 10) != 0;
  }();
  return wanted;
}

void NpuAllocator::buildServerMemMapForHccl(int device, std::shared_ptr<c10d_npu::HCCLComm> comm) {
  assert_valid_device(device);
  hccl_mirror().attach(device, std::move(comm));
}

}  // namespace npualloc::torch_npu_plugin
