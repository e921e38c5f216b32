// Lets torch_npu be imported next to a CUDA build of torch.
//
// torch's libc10_cuda.so and torch_npu (2.13 and later) both register the
// allocator-config key `pinned_reserve_segment_size_mb`, and the second
// registration throws. This library is preloaded, so that its definition of
// AcceleratorAllocatorConfig::getMutableKeys() comes first: a call that comes
// from libc10_cuda.so gets a set nobody reads, every other call gets the real
// one. The class is declared here with this one member only because the
// mangled name is all that matters; no torch header is needed.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_set>

namespace c10::CachingAllocator {

class AcceleratorAllocatorConfig {
 public:
  __attribute__((visibility("default"), noinline)) static std::unordered_set<std::string>&
  getMutableKeys();
};

namespace {

using KeySet = std::unordered_set<std::string>;
using KeysFn = KeySet& (*)();

KeysFn RealKeys() {
  Dl_info self{};
  // NOLINTNEXTLINE: a function pointer is an address on every POSIX platform.
  if (dladdr(reinterpret_cast<void*>(&AcceleratorAllocatorConfig::getMutableKeys), &self) == 0 ||
      self.dli_sname == nullptr) {
    return nullptr;
  }
  void* c10 = dlopen("libc10.so", RTLD_NOLOAD | RTLD_LAZY);
  if (c10 == nullptr) {
    return nullptr;
  }
  return reinterpret_cast<KeysFn>(dlsym(c10, self.dli_sname));
}

bool CalledFromCuda(void* return_address) {
  Dl_info caller{};
  return dladdr(return_address, &caller) != 0 && caller.dli_fname != nullptr &&
         std::strstr(caller.dli_fname, "libc10_cuda") != nullptr;
}

}  // namespace

KeySet& AcceleratorAllocatorConfig::getMutableKeys() {
  if (CalledFromCuda(__builtin_return_address(0))) {
    static KeySet discarded;
    return discarded;
  }
  static KeysFn real = RealKeys();
  if (real == nullptr) {
    std::fputs("cann-sim: import fix: libc10.so does not define getMutableKeys()\n", stderr);
    std::abort();
  }
  return real();
}

}  // namespace c10::CachingAllocator
