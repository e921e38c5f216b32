/* Preloaded before the device's runtime, as a library that limits or counts its memory would be. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

static int fixed_count;
static int physical_count;

static void* runtime(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  return found != NULL ? found : dlsym(dlopen("libascendcl.so", RTLD_NOW), name);
}

int32_t aclrtMallocAlign32(void** ptr, size_t size, int32_t policy) {
  int32_t (*next)(void**, size_t, int32_t) = runtime("aclrtMallocAlign32");
  ++fixed_count;
  return next(ptr, size, policy);
}

int32_t aclrtMallocPhysical(void** handle, size_t size, const void* properties, uint64_t flags) {
  int32_t (*next)(void**, size_t, const void*, uint64_t) = runtime("aclrtMallocPhysical");
  ++physical_count;
  return next(handle, size, properties, flags);
}

int test_fixed_count(void) { return fixed_count; }
int test_physical_count(void) { return physical_count; }
