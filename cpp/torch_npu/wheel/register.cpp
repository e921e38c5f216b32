// What happens when the library is loaded.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../allocator/npu_allocator.h"
#include "../allocator/recording.h"
#include "../allocator/settings.h"
#include "../driver/driver.h"
#include "plugin.h"
#include "rust/cxx.h"
#include "wheel.h"

namespace npualloc::torch_npu_plugin {

namespace {

// Why the library did not register itself; empty when it did or was told not to.
std::string& load_error() {
  static auto* text = new std::string;
  return *text;
}

bool disabled() {
  const char* value = std::getenv("NPUALLOC_DISABLE");
  return value != nullptr && std::strcmp(value, "") != 0 && std::strcmp(value, "0") != 0;
}

void register_allocator() {
  stock::NPUAllocator* wheel = stock::allocator.load();
  TORCH_CHECK(wheel != nullptr, "npualloc: torch_npu has no allocator; import torch_npu first");
  TORCH_CHECK(the_allocator.load() == nullptr && wheel->name() == "native",
              "npualloc: another allocator is in place already (", wheel->name(),
              "); load npualloc before changing the allocator");
  TORCH_CHECK(
      !wheel->initialized(),
      "npualloc: the NPU is initialised already; load npualloc after `import torch_npu` and "
      "before the first use of an NPU");
  environment_uncached();  // A bad value is reported here rather than at the first allocation.
  driver_table();          // A runtime that lacks a function is reported here too.
  meet_wheel(wheel);
  auto* mine = new NpuAllocator();
  the_allocator.store(mine, std::memory_order_release);
  stock::allocator.store(mine);
  // The same priority as the stock allocator's: what replaces that one later can replace this one
  // too.
  c10::SetAllocator(c10::DeviceType::PrivateUse1, mine);
  follow_wheel();
  std::atexit([] { the_allocator.load()->begin_process_exit(); });
}

// A constructor can neither throw through the dynamic loader nor make dlopen fail. Where Python
// called it, an exception is left for the interpreter to find when dlopen returns.
void report(const std::string& message) {
  load_error() = message;
  using IsInitialized = int (*)();
  using ThisThreadState = void* (*)();
  using Ensure = int (*)();
  using Release = void (*)(int);
  using SetString = void (*)(void*, const char*);
  const auto is_initialized =
      reinterpret_cast<IsInitialized>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  const auto this_thread =
      reinterpret_cast<ThisThreadState>(dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
  const auto ensure = reinterpret_cast<Ensure>(dlsym(RTLD_DEFAULT, "PyGILState_Ensure"));
  const auto release = reinterpret_cast<Release>(dlsym(RTLD_DEFAULT, "PyGILState_Release"));
  const auto set_string = reinterpret_cast<SetString>(dlsym(RTLD_DEFAULT, "PyErr_SetString"));
  auto** runtime_error = static_cast<void**>(dlsym(RTLD_DEFAULT, "PyExc_RuntimeError"));
  const bool python = is_initialized && this_thread && ensure && release && set_string &&
                      runtime_error && is_initialized() != 0 && this_thread() != nullptr;
  if (!python) {
    std::fprintf(stderr, "%s\n", message.c_str());
    return;
  }
  const int state = ensure();
  set_string(*runtime_error, message.c_str());
  release(state);
}

[[gnu::constructor]] void on_load() {
  if (disabled()) return;
  try {
    register_allocator();
  } catch (const c10::Error& error) {
    report(error.what_without_backtrace());
  } catch (const std::exception& error) {
    report(std::string(error.what()).rfind("npualloc", 0) == 0
               ? error.what()
               : std::string("npualloc: ") + error.what());
  }
}

}  // namespace

}  // namespace npualloc::torch_npu_plugin

using npualloc::torch_npu_plugin::load_error;
using npualloc::torch_npu_plugin::NpuAllocator;
using npualloc::torch_npu_plugin::the_allocator;
using npualloc::torch_npu_plugin::without_timing;

namespace {

namespace recording = npualloc::torch_npu_plugin::recording;

// Null, or why it failed: valid until this thread's next call.
template <typename Call>
const char* told(Call call) {
  thread_local std::string text;
  NpuAllocator* allocator = the_allocator.load();
  if (allocator == nullptr) return "npualloc is not registered";
  try {
    call(*allocator);
    return nullptr;
  } catch (const c10::Error& error) {
    text = error.what_without_backtrace();
    return text.c_str();
  } catch (const std::exception& error) {
    text = error.what();
    return text.c_str();
  }
}

std::runtime_error no_trace() { return std::runtime_error("npualloc: no trace is being written"); }

}  // namespace

extern "C" {

const char* npualloc_load_error() { return load_error().empty() ? nullptr : load_error().c_str(); }

int npualloc_is_registered() {
  return the_allocator.load() != nullptr &&
         without_timing(c10_npu::NPUCachingAllocator::allocator.load()) == the_allocator.load();
}

const char* npualloc_trace_start(const char* path) { return npualloc_trace_begin(path, nullptr); }

const char* npualloc_trace_begin(const char* path, std::uint64_t* recording) {
  return told([&](NpuAllocator& allocator) {
    const std::uint64_t number = recording::start(allocator, path);
    if (recording != nullptr) *recording = number;
  });
}

void npualloc_trace_stacks(int wanted) { recording::take_stacks(wanted != 0); }

const char* npualloc_trace_mark(const char* label) {
  return told([&](NpuAllocator&) {
    if (!recording::mark(label, recording::kAny)) throw no_trace();
  });
}

const char* npualloc_trace_note(std::uint64_t recording, const char* label, int* noted) {
  return told([&](NpuAllocator&) {
    const bool is_noted = recording::mark(label, recording);
    if (noted != nullptr) *noted = is_noted;
  });
}

const char* npualloc_trace_synchronized(void* stream) {
  return told([&](NpuAllocator&) {
    if (stream == nullptr) {
      recording::device_waited();
    } else {
      recording::stream_waited(stream);
    }
  });
}

const char* npualloc_trace_event_recorded(void* event, int device, std::int64_t stream) {
  return told([&](NpuAllocator&) {
    const c10::Device where(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device));
    const c10_npu::NPUStream named(c10_npu::NPUStream::UNCHECKED,
                                   c10::Stream(c10::Stream::UNSAFE, where, stream));
    // Without waiting for the host task queue.
    recording::event_recorded(event, named.stream(false));
  });
}

const char* npualloc_trace_event_waited(void* event) {
  return told([&](NpuAllocator&) { recording::event_waited(event); });
}

const char* npualloc_trace_stop(std::uint64_t* bytes) {
  return told([&](NpuAllocator& allocator) {
    const auto written = recording::stop(allocator, recording::kAny);
    if (!written.has_value()) throw no_trace();
    if (bytes != nullptr) *bytes = *written;
  });
}

const char* npualloc_trace_end(std::uint64_t recording, std::uint64_t* bytes, int* ended) {
  return told([&](NpuAllocator& allocator) {
    const auto written = recording::stop(allocator, recording);
    if (bytes != nullptr && written.has_value()) *bytes = *written;
    if (ended != nullptr) *ended = written.has_value();
  });
}

void npualloc_trace_end_of_process() { recording::end_of_process(); }

int npualloc_trace_is_on() { return recording::on(); }

const char* npualloc_check_consistency() {
  thread_local std::string text;
  if (the_allocator.load() == nullptr) return "npualloc is not registered";
  try {
    the_allocator.load()->core().check_consistency();
    return nullptr;
  } catch (const rust::Error& error) {
    text = error.what();
    return text.c_str();
  }
}

const char* npualloc_check_memory(int device, std::uint64_t* bytes) {
  return told([&](NpuAllocator& allocator) {
    const auto looked = allocator.core().check_memory(device);
    allocator.check(looked.status, looked.code);
    if (bytes != nullptr) *bytes = looked.value;
  });
}

const char* npualloc_sleep(int device, std::uint64_t first, std::uint64_t second, int all,
                           std::uint64_t* bytes) {
  return told([&](NpuAllocator& allocator) {
    const auto slept = allocator.core().sleep(device, {first, second}, all != 0);
    allocator.check(slept.status, slept.code);
    if (bytes != nullptr) *bytes = slept.value;
  });
}

const char* npualloc_wake_up(int device, std::uint64_t first, std::uint64_t second, int all,
                             std::uint64_t* bytes) {
  return told([&](NpuAllocator& allocator) {
    const auto woken = allocator.core().wake_up(device, {first, second}, all != 0);
    allocator.check(woken.status, woken.code);
    if (bytes != nullptr) *bytes = woken.value;
  });
}

const char* npualloc_ladder(int device) {
  thread_local std::string text;
  if (the_allocator.load() == nullptr) return nullptr;
  text.clear();
  for (const auto& entry : the_allocator.load()->core().ladder(device)) {
    text.append(entry.name.data(), entry.name.size());
    text += ' ' + std::to_string(entry.count) + '\n';
  }
  return text.empty() ? nullptr : text.c_str();
}

}  // extern "C"
