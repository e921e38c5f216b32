#include "recording.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>

#include "../driver/driver.h"
#include "../python/frames.h"
#include "npu_allocator.h"
#include "rust/cxx.h"

namespace npualloc::torch_npu_plugin::recording {

constinit std::atomic<const ffi::Recorder*> recorder{nullptr};
constinit thread_local int OwnWait::depth = 0;

namespace {

// Serialises start and stop.
std::mutex& switching() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

// The process that records: the file is not a forked child's to end.
std::atomic<pid_t> recording_process{0};

int current_device() {
  int device = 0;
  return c10_npu::GetDevice(&device) == ACL_ERROR_NONE ? device : 0;
}

std::atomic<bool>& stacks_wanted() {
  static auto* wanted = new std::atomic<bool>([] {
    const char* text = std::getenv("NPUALLOC_TRACE_STACKS");
    return text != nullptr && *text != '\0' && std::string(text) != "0";
  }());
  return *wanted;
}

// Whether the recording under way has stacks: what was wanted when it began.
std::atomic<bool> taking_stacks{false};

// Numbers of the stacks that a recording has.
struct Stacks {
  std::mutex mutex;
  const ffi::Recorder* recorder = nullptr;
  std::map<std::vector<python_frames::Frame>, std::uint32_t> numbers;
};

Stacks& stacks() {
  static auto* stacks = new Stacks;
  return *stacks;
}

// The number of the calling thread's stack; 0 where it has none or none is wanted.
std::uint32_t current_stack(const ffi::Recorder& current) {
  if (!taking_stacks.load(std::memory_order_relaxed)) return 0;
  thread_local std::vector<python_frames::Frame> frames;
  python_frames::gather(frames);
  if (frames.empty()) return 0;
  Stacks& all = stacks();
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    if (all.recorder != &current) {
      all.recorder = &current;
      all.numbers.clear();
    }
    const auto known = all.numbers.find(frames);
    if (known != all.numbers.end()) return known->second;
  }
  // Not under the mutex: this takes the interpreter's lock, whose holder may wait for the mutex.
  const std::string text = python_frames::text(frames);
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.recorder != &current) return 0;
  const auto [place, added] = all.numbers.try_emplace(frames, 0);
  if (added) place->second = current.add_stack(rust::String::lossy(text));
  return place->second;
}

const ffi::Recorder* under_way() { return recorder.load(std::memory_order_acquire); }

// As no recorder is ever destroyed, no other will have its address.
std::uint64_t number_of(const ffi::Recorder* recorder) {
  return reinterpret_cast<std::uintptr_t>(recorder);
}

// As `under_way`, if that is the recording of this number.
const ffi::Recorder* under_way(std::uint64_t number) {
  const ffi::Recorder* current = under_way();
  return number == kAny || number == number_of(current) ? current : nullptr;
}

// The path is that of the device which is used first.
constexpr int kFirstUsed = -1;

std::uint64_t start_on(NpuAllocator& allocator, const std::string& path, int device) {
  const std::lock_guard<std::mutex> lock(switching());
  if (under_way() != nullptr)
    throw std::runtime_error("npualloc: a trace is being written already");
  if (!allocator.initialized()) {
    throw std::runtime_error(
        "npualloc: the NPU is not initialised yet; set NPUALLOC_TRACE instead");
  }
  try {
    auto started =
        ffi::start_recording(allocator.core(), device, rust::Str(path.data(), path.size()));
    recording_process.store(getpid());
    taking_stacks.store(stacks_wanted().load());
    recorder.store(started.into_raw(), std::memory_order_release);
  } catch (const rust::Error& error) {
    throw std::runtime_error(std::string("npualloc: no trace: ") + error.what());
  } catch (const std::invalid_argument&) {
    const rust::String shown = rust::String::lossy(path);
    throw std::runtime_error("npualloc: no trace: " + std::string(shown.data(), shown.size()) +
                             ": the path is not UTF-8");
  }
  allocator.recording_changed();
  // What is left is written when the process ends.
  static const int registered = std::atexit(end_of_process);
  (void)registered;
  return number_of(under_way());
}

}  // namespace

void take_stacks(bool wanted) { stacks_wanted().store(wanted); }

std::uint64_t start(NpuAllocator& allocator, const std::string& path) {
  // Before the NPU is initialised, which is refused, no device is asked for.
  return start_on(allocator, path, allocator.initialized() ? current_device() : kFirstUsed);
}

void end_of_process() {
  if (recording_process.load() != getpid()) return;
  try {
    if (under_way() != nullptr) stop(*the_allocator.load(), kAny);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
}

std::optional<std::uint64_t> stop(NpuAllocator& allocator, std::uint64_t number) {
  const std::lock_guard<std::mutex> lock(switching());
  const ffi::Recorder* ending = under_way(number);
  if (ending == nullptr) return std::nullopt;
  recorder.store(nullptr, std::memory_order_release);
  allocator.recording_changed();
  try {
    return ending->finish();
  } catch (const rust::Error& error) {
    throw std::runtime_error(std::string("npualloc: the trace is incomplete: ") + error.what());
  }
}

bool mark(const std::string& label, std::uint64_t number) {
  const ffi::Recorder* current = under_way(number);
  // Bytes that are no UTF-8 become marks of their own.
  return current != nullptr && current->mark(rust::String::lossy(label));
}

void follow_environment(NpuAllocator& allocator) {
  static std::atomic<bool> first{true};
  const char* path = std::getenv("NPUALLOC_TRACE");
  if (path == nullptr || *path == '\0' || !first.exchange(false)) return;
  try {
    // torch_npu initialises the allocator before it has a current device: to ask for one would make
    // a context on device 0, whichever the program is about to choose.
    start_on(allocator, path, kFirstUsed);
  } catch (const std::exception& error) {
    // Said even where torch_npu's warnings are off: somebody waits for this file.
    std::fprintf(stderr, "%s\n", error.what());
  }
}

void allocated(const ffi::Allocator& core, int device, std::uintptr_t addr, std::size_t bytes,
               aclrtStream stream, const ffi::MempoolId& pool) {
  if (const ffi::Recorder* current = under_way()) {
    current->allocated(
        core, addr,
        {device, bytes, reinterpret_cast<std::uintptr_t>(stream), pool, current_stack(*current)});
  }
}

void freed(std::uintptr_t addr) {
  if (const ffi::Recorder* current = under_way()) current->freed(addr);
}

void used(std::uintptr_t addr, aclrtStream stream) {
  if (const ffi::Recorder* current = under_way()) {
    current->used(addr, reinterpret_cast<std::uintptr_t>(stream));
  }
}

void emptied(int device) {
  if (const ffi::Recorder* current = under_way()) current->emptied(device);
}

void pool_released(int device, const ffi::MempoolId& pool) {
  if (const ffi::Recorder* current = under_way()) current->pool_released(device, pool);
}

void stream_waited(aclrtStream stream) {
  if (OwnWait::underway()) return;
  if (const ffi::Recorder* current = under_way()) {
    current->stream_waited(reinterpret_cast<std::uintptr_t>(stream));
  }
}

void device_waited() {
  if (OwnWait::underway()) return;
  if (const ffi::Recorder* current = under_way()) current->device_waited(current_device());
}

void event_recorded(aclrtEvent event, aclrtStream stream) {
  if (const ffi::Recorder* current = under_way()) {
    current->event_recorded(reinterpret_cast<std::uintptr_t>(event),
                            reinterpret_cast<std::uintptr_t>(stream));
  }
}

void event_waited(aclrtEvent event) {
  if (const ffi::Recorder* current = under_way()) {
    current->event_waited(reinterpret_cast<std::uintptr_t>(event));
  }
}

}  // namespace npualloc::torch_npu_plugin::recording
