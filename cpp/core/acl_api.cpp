#include "acl_api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>

namespace npualloc::acl {

namespace {

// Preloaded libraries may stand in front of the runtime's functions, to count or limit what a
// process takes. They are found in the global scope only; torch_npu, too, looks there first just
// where LD_PRELOAD is set.
bool has_preloaded_libraries() {
  const char* list = std::getenv("LD_PRELOAD");
  return list != nullptr && *list != '\0';
}

class Resolver {
 public:
  explicit Resolver(const std::string& library) : library_(library) {
    handle_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) {
      const char* why = dlerror();
      throw std::runtime_error("npualloc: cannot load the device runtime " + library + ": " +
                               (why != nullptr ? why : "unknown error"));
    }
  }

  template <typename Function>
  bool optional(Function*& function, const char* name) const {
    void* found = preloaded_ ? dlsym(RTLD_DEFAULT, name) : nullptr;
    if (found == nullptr) found = dlsym(handle_, name);
    function = reinterpret_cast<Function*>(found);
    return function != nullptr;
  }

  template <typename Function>
  void required(Function*& function, const char* name) const {
    if (!optional(function, name)) {
      throw std::runtime_error("npualloc: the device runtime " + library_ + " has no function " +
                               name);
    }
  }

 private:
  std::string library_;
  bool preloaded_ = has_preloaded_libraries();
  void* handle_;
};

}  // namespace

Api load(const std::string& library) {
  const Resolver find(library);
  Api api{};
  find.required(api.set_device, "aclrtSetDevice");
  find.required(api.get_device, "aclrtGetDevice");
  find.required(api.get_device_count, "aclrtGetDeviceCount");
  find.required(api.get_current_context, "aclrtGetCurrentContext");
  find.required(api.set_current_context, "aclrtSetCurrentContext");
  find.required(api.synchronize_device, "aclrtSynchronizeDevice");
  // Runtimes before aclrtMallocAlign32 only have the call that pads by 32 bytes itself.
  if (!find.optional(api.malloc_align32, "aclrtMallocAlign32")) {
    find.required(api.malloc_align32, "aclrtMalloc");
  }
  find.required(api.free, "aclrtFree");
  find.required(api.get_mem_info, "aclrtGetMemInfo");
  if (find.optional(api.create_event, "aclrtCreateEventExWithFlag")) {
    // A wait for such an event is for its latest record, whatever is recorded later.
    find.optional(api.stream_wait_event, "aclrtStreamWaitEvent");
  } else {
    find.required(api.create_event, "aclrtCreateEventWithFlag");
  }
  find.required(api.destroy_event, "aclrtDestroyEvent");
  find.required(api.record_event, "aclrtRecordEvent");
  find.required(api.query_event, "aclrtQueryEventStatus");
  find.required(api.synchronize_event, "aclrtSynchronizeEvent");
  find.optional(api.memcpy, "aclrtMemcpy");
  find.optional(api.memset, "aclrtMemset");
  find.optional(api.reserve_address, "aclrtReserveMemAddress");
  find.optional(api.release_address, "aclrtReleaseMemAddress");
  find.optional(api.malloc_physical, "aclrtMallocPhysical");
  find.optional(api.free_physical, "aclrtFreePhysical");
  find.optional(api.map, "aclrtMapMem");
  find.optional(api.unmap, "aclrtUnmapMem");
  find.optional(api.peek_at_last_error, "aclrtPeekAtLastError");
  find.optional(api.get_last_error, "aclrtGetLastError");
  return api;
}

namespace {

// What people look for begins as in the stock allocator.
constexpr const char* kNoPagesOf1G =
    "The malloc 1G large-page physical memory failed, so malloc 2M page memory. "
    "PYTORCH_NPU_ALLOC_CONF has page_size:1g, "
    "but the driver has not set enough 1G pages aside.";

}  // namespace

Code malloc_device(const Api& api, std::size_t bytes, bool huge_1g, std::uintptr_t* addr,
                   void (*warn)(const char* text)) {
  void* ptr = nullptr;
  Code code = kSuccess;
  const auto obtain = [&](MallocPolicy policy) {
    return told_by_code(api, [&] { return api.malloc_align32(&ptr, bytes, policy); });
  };
  if (huge_1g) {
    code = obtain(MallocPolicy::Huge1GOnly);
    if (code != kSuccess && warn != nullptr) {
      warn(kNoPagesOf1G);
    }
  }
  if (!huge_1g || code != kSuccess) {
    code = obtain(MallocPolicy::HugeFirst);
  }
  *addr = reinterpret_cast<std::uintptr_t>(ptr);
  return code;
}

Code malloc_physical(const Api& api, std::int32_t device, std::size_t bytes, bool huge_1g,
                     std::uintptr_t* handle, void (*warn)(const char* text)) {
  PhysicalProperties properties{};
  properties.attribute = huge_1g ? MemoryAttribute::HbmHuge1G : MemoryAttribute::HbmHuge;
  properties.location = {static_cast<std::uint32_t>(device), kLocationDevice};
  MemoryHandle made = nullptr;
  const auto obtain = [&] {
    return told_by_code(api, [&] { return api.malloc_physical(&made, bytes, &properties, 0); });
  };
  Code code = obtain();
  if (huge_1g && code != kSuccess) {
    if (warn != nullptr) warn(kNoPagesOf1G);
    properties.attribute = MemoryAttribute::HbmHuge;
    code = obtain();
  }
  *handle = reinterpret_cast<std::uintptr_t>(made);
  return code;
}

}  // namespace npualloc::acl
