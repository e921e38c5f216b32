#include "waits.h"

#include <dlfcn.h>

#include <cstring>

#include "../allocator/recording.h"
#include "got_hook.h"

namespace npualloc::torch_npu_plugin {

namespace {

// The runtime's own, as the wheel found them.
aclError (*stream_with_timeout)(aclrtStream, std::int32_t) = nullptr;
aclError (*whole_stream)(aclrtStream) = nullptr;
aclError (*device_with_timeout)(std::int32_t) = nullptr;
aclError (*whole_device)() = nullptr;

aclError told_stream(aclError code, aclrtStream stream) {
  if (code == ACL_ERROR_NONE && recording::on()) recording::stream_waited(stream);
  return code;
}

aclError told_device(aclError code) {
  if (code == ACL_ERROR_NONE && recording::on()) recording::device_waited();
  return code;
}

aclError wait_stream_with_timeout(aclrtStream stream, std::int32_t timeout) {
  return told_stream(stream_with_timeout(stream, timeout), stream);
}
aclError wait_stream(aclrtStream stream) { return told_stream(whole_stream(stream), stream); }
aclError wait_device_with_timeout(std::int32_t timeout) {
  return told_device(device_with_timeout(timeout));
}
aclError wait_device() { return told_device(whole_device()); }

struct Wait {
  const char* name;
  void** original;
  void* replacement;
};

const Wait kWaits[] = {
    {"aclrtSynchronizeStreamWithTimeout", reinterpret_cast<void**>(&stream_with_timeout),
     reinterpret_cast<void*>(&wait_stream_with_timeout)},
    {"aclrtSynchronizeStream", reinterpret_cast<void**>(&whole_stream),
     reinterpret_cast<void*>(&wait_stream)},
    {"aclrtSynchronizeDeviceWithTimeout", reinterpret_cast<void**>(&device_with_timeout),
     reinterpret_cast<void*>(&wait_device_with_timeout)},
    {"aclrtSynchronizeDevice", reinterpret_cast<void**>(&whole_device),
     reinterpret_cast<void*>(&wait_device)},
};

// The wheel looks most functions of the runtime up by name, each when it is first needed, in the
// runtime's library; or, with LD_PRELOAD, first in the global scope, which is the same from here.
void* find_symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) return found;
  for (const Wait& wait : kWaits) {
    if (std::strcmp(name, wait.name) == 0) {
      // The wheel asks under a lock, but may be waiting already by the other way.
      if (*wait.original == nullptr) *wait.original = found;
      return wait.replacement;
    }
  }
  return found;
}

}  // namespace

void follow_waits() {
  constexpr const char* kWheel = "libtorch_npu.so";
  // It imports this one too. Nobody may call the replacement before it knows the original.
  whole_stream =
      reinterpret_cast<decltype(whole_stream)>(dlsym(RTLD_DEFAULT, "aclrtSynchronizeStream"));
  if (whole_stream != nullptr) {
    redirect_import(kWheel, "aclrtSynchronizeStream", reinterpret_cast<void*>(&wait_stream));
  }
  if (redirect_import(kWheel, "dlsym", reinterpret_cast<void*>(&find_symbol)) == nullptr) {
    TORCH_WARN(
        "npualloc: this torch_npu finds the runtime's functions another way; recordings "
        "(NPUALLOC_TRACE) will not have its waits for the device");
  }
}

}  // namespace npualloc::torch_npu_plugin
