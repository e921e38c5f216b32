#include "mstx.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>

namespace npualloc::torch_npu_plugin::mstx {

namespace {

// The tool's hook library, and the domain in which torch_npu's caching allocator reports.
constexpr const char* kHookLibrary = "libascend_kernel_hook.so";
constexpr const char* kDomain = "ptaCaching";

// The part of mstx's C interface used here. The library is looked up, so its header is not needed.
struct Domain;
struct Heap;
struct Region;

struct VirtualRange {
  std::uint32_t device;
  const void* ptr;
  std::uint64_t size;
};

struct HeapDescription {
  int usage;  // 0: memory of a sub-allocator.
  int type;   // 0: an address range.
  const void* range;
};

struct RegionsToRegister {
  Heap* heap;
  int type;  // 0: address ranges.
  std::size_t count;
  const void* ranges;
  Region** handles;
};

struct RegionReference {
  int type;  // 0: by address.
  const void* ptr;
};

struct RegionsToUnregister {
  std::size_t count;
  const RegionReference* references;
};

struct Functions {
  Domain* (*create_domain)(const char* name) = nullptr;
  Heap* (*register_heap)(Domain* domain, const HeapDescription* heap) = nullptr;
  void (*register_regions)(Domain* domain, const RegionsToRegister* regions) = nullptr;
  void (*unregister_regions)(Domain* domain, const RegionsToUnregister* regions) = nullptr;
  Domain* domain = nullptr;
};

bool is_preloaded() {
  const char* list = std::getenv("LD_PRELOAD");
  if (list == nullptr) return false;
  std::istringstream paths(list);
  for (std::string path; std::getline(paths, path, ':');) {
    std::error_code error;
    const auto real = std::filesystem::canonical(path, error);
    if (!error && real.filename() == kHookLibrary) return true;
  }
  return false;
}

template <typename Function>
void find(void* library, Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
}

Functions load() {
  Functions functions;
  // Like torch_npu: only where CANN's home has the library.
  const char* home = std::getenv("ASCEND_HOME_PATH");
  if (home == nullptr) return functions;
  const std::string path = std::string(home) + "/lib64/libms_tools_ext.so";
  if (!std::filesystem::exists(path)) return functions;
  void* library = dlopen("libms_tools_ext.so", RTLD_NOW);
  if (library == nullptr) library = dlopen(path.c_str(), RTLD_NOW);
  if (library == nullptr) return functions;
  find(library, functions.create_domain, "mstxDomainCreateA");
  find(library, functions.register_heap, "mstxMemHeapRegister");
  find(library, functions.register_regions, "mstxMemRegionsRegister");
  find(library, functions.unregister_regions, "mstxMemRegionsUnregister");
  if (functions.create_domain != nullptr) functions.domain = functions.create_domain(kDomain);
  return functions;
}

const Functions& functions() {
  static const Functions loaded = load();
  return loaded;
}

// The tools take the heap's size from its latest registration.
Heap* register_heap(int device, const void* ptr, std::uint64_t reserved) {
  if (functions().register_heap == nullptr) return nullptr;
  const VirtualRange range{static_cast<std::uint32_t>(device), ptr, reserved};
  const HeapDescription heap{0, 0, &range};
  return functions().register_heap(functions().domain, &heap);
}

}  // namespace

bool enabled() {
  static const bool preloaded = is_preloaded();
  return preloaded;
}

void allocated(int device, std::uintptr_t addr, std::uint64_t size, std::uint64_t reserved) {
  const void* ptr = reinterpret_cast<const void*>(addr);
  Heap* heap = register_heap(device, ptr, reserved);
  if (functions().register_regions == nullptr) return;
  const VirtualRange range{static_cast<std::uint32_t>(device), ptr, size};
  const RegionsToRegister regions{heap, 0, 1, &range, nullptr};
  functions().register_regions(functions().domain, &regions);
}

void freed(int device, std::uintptr_t addr, std::uint64_t reserved) {
  const void* ptr = reinterpret_cast<const void*>(addr);
  register_heap(device, ptr, reserved);
  if (functions().unregister_regions == nullptr) return;
  const RegionReference reference{0, ptr};
  const RegionsToUnregister regions{1, &reference};
  functions().unregister_regions(functions().domain, &regions);
}

}  // namespace npualloc::torch_npu_plugin::mstx
