#include "debug.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <sstream>
#include <string_view>

#include "../allocator/recording.h"
#include "../pch.h"
#include "../python/stack.h"
#include "calls.h"
#include "driver.h"

namespace npualloc::torch_npu_plugin {

namespace {

constexpr int kFrames = 16;

// Makes a device current while it lives.
class OnDevice {
 public:
  explicit OnDevice(std::int32_t device) : guard_(static_cast<c10::DeviceIndex>(device)) {}

 private:
  c10_npu::NPUGuard guard_;
};

// The debug mode, and whoever compares two addresses, only wants to know whether it worked: what
// is wrong with the device is the program's own next call's to tell.
template <typename Call>
std::int32_t quiet(Call call) noexcept {
  try {
    // The memory is that of the process which looked first: one that is forked from it must neither
    // write to what the other uses nor use its runtime.
    static const pid_t process = getpid();
    if (!runtime_is_up() || process != getpid()) return acl::kUnsupported;
    return python::staying(call);
  } catch (...) {
    return acl::kUnsupported;
  }
}

std::int32_t settle_fn(void*, std::int32_t device) {
  return quiet([&] {
    if (is_queue_thread() || python::is_finalizing()) return acl::kUnsupported;
    // The queue's threads may need the interpreter's lock.
    const python::Released released;
    const OnDevice scope(device);
    const recording::OwnWait own;
    c10_npu::npuSynchronizeDevice(true);
    return acl::kSuccess;
  });
}

std::int32_t fill_fn(void*, std::int32_t device, std::uintptr_t addr, std::size_t bytes,
                     std::uint8_t value) {
  return quiet([&] {
    const OnDevice scope(device);
    void* const start = reinterpret_cast<void*>(addr);
    return acl::told_by_code(api(), [&] { return api().memset(start, bytes, value, bytes); });
  });
}

std::int32_t read_fn(void*, std::int32_t device, std::uintptr_t addr, std::size_t bytes,
                     std::uint8_t* into) {
  return quiet([&] {
    const OnDevice scope(device);
    const void* const start = reinterpret_cast<const void*>(addr);
    return acl::told_by_code(
        api(), [&] { return api().memcpy(into, bytes, start, bytes, acl::kDeviceToHost); });
  });
}

// Without the frames of this library, which are innermost.
std::string native_stack() {
  void* frames[3 * kFrames];
  const int count = backtrace(frames, 3 * kFrames);
  Dl_info own{};
  dladdr(reinterpret_cast<const void*>(&settle_fn), &own);
  std::string text;
  for (int i = 0, told = 0; i < count && told < kFrames; ++i) {
    Dl_info info{};
    const bool known = dladdr(frames[i], &info) != 0;
    if (known && told == 0 && info.dli_fbase == own.dli_fbase) continue;
    std::ostringstream line;
    line << (known ? info.dli_fname : "?") << "(+0x" << std::hex
         << static_cast<const char*>(frames[i]) - static_cast<const char*>(info.dli_fbase) << ")";
    if (known && info.dli_sname != nullptr) line << " in " << info.dli_sname;
    (text += line.str()) += '\n';
    ++told;
  }
  return text;
}

std::size_t stack_fn(void*, std::uint8_t* into, std::size_t capacity) {
  try {
    std::string text = python::stack(kFrames);
    if (text.empty()) text = native_stack();
    const std::size_t count = std::min(text.size(), capacity);
    std::memcpy(into, text.data(), count);
    return count;
  } catch (...) {
    return 0;
  }
}

}  // namespace

void add_debug_functions(DriverTable& table) {
  if (api().has_contents()) {
    table.settle = &settle_fn;
    table.fill = &fill_fn;
    table.read = &read_fn;
  }
  table.stack = &stack_fn;
}

}  // namespace npualloc::torch_npu_plugin
