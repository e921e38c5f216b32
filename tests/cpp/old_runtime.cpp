// A device runtime from before aclrtMallocAlign32, events that streams wait for, and virtual
// memory.
#include <cstddef>
#include <cstdint>

namespace {

alignas(512) char memory[2 << 20];
constexpr int kSuccess = 0;

}  // namespace

extern "C" {

int aclrtSetDevice(std::int32_t) { return kSuccess; }
int aclrtGetDevice(std::int32_t* device) {
  *device = 0;
  return kSuccess;
}
int aclrtGetDeviceCount(std::uint32_t* count) {
  *count = 1;
  return kSuccess;
}
int aclrtGetCurrentContext(void** context) {
  *context = memory;
  return kSuccess;
}
int aclrtSetCurrentContext(void*) { return kSuccess; }
int aclrtSynchronizeDevice() { return kSuccess; }
int aclrtMalloc(void** ptr, std::size_t, int) {
  *ptr = memory;
  return kSuccess;
}
int aclrtFree(void*) { return kSuccess; }
int aclrtGetMemInfo(int, std::size_t* free, std::size_t* total) {
  *free = *total = sizeof memory;
  return kSuccess;
}
int aclrtCreateEventWithFlag(void** event, std::uint32_t) {
  *event = memory;
  return kSuccess;
}
int aclrtDestroyEvent(void*) { return kSuccess; }
int aclrtRecordEvent(void*, void*) { return kSuccess; }
int aclrtQueryEventStatus(void*, int* status) {
  *status = 1;
  return kSuccess;
}
int aclrtSynchronizeEvent(void*) { return kSuccess; }

}  // extern "C"
