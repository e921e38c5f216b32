// The C functions hot.py calls. Failures come back as text.
#include <dlfcn.h>

#include "bench.h"

namespace bench {

namespace {

constexpr int kSubjects = 2;
Allocator* subjects[kSubjects] = {};
int device_count = 0;
std::string failure;

// Of cann_sim.h; layout as there.
struct SimStats {
  std::uint64_t before[5];
  std::uint64_t driver_calls;
  std::uint64_t after[6];
};

Subject subject(int index) {
  // With fewer than four devices the subjects share them.
  return {subjects[index], 2 * index % device_count, (2 * index + 1) % device_count};
}

template <class Call>
auto guarded(Call call) noexcept -> decltype(call()) {
  failure.clear();
  try {
    return call();
  } catch (const std::exception& error) {
    failure = error.what();
    return {};
  }
}

std::unique_ptr<Case> make(const std::string& kind, const Subject& who, const std::int64_t* n) {
  const auto bytes = static_cast<std::uint64_t>(n[0]);
  if (kind == "pair") return make_pair(who, bytes);
  if (kind == "churn") {
    return make_churn(who, bytes, static_cast<std::uint64_t>(n[1]), static_cast<double>(n[2]));
  }
  if (kind == "data_ptr") return make_data_ptr(who, bytes);
  if (kind == "history") return make_history(who, bytes);
  if (kind == "record_stream") return make_record_stream(who, bytes, n[1]);
  if (kind == "event") return make_event(who, n[0]);
  if (kind == "stats") return make_stats(who);
  if (kind == "snapshot") return make_snapshot(who, bytes);
  if (kind == "threads") return make_threads(who, static_cast<int>(n[0]), n[1] != 0);
  throw std::runtime_error("no such case: " + kind);
}

}  // namespace

std::uint64_t driver_calls() {
  using GetStats = int (*)(std::int32_t, SimStats*);
  static const auto get_stats = reinterpret_cast<GetStats>(dlsym(RTLD_DEFAULT, "cannSimGetStats"));
  std::uint64_t calls = 0;
  for (int device = 0; get_stats != nullptr && device < device_count; ++device) {
    SimStats stats{};
    if (get_stats(device, &stats) == 0) calls += stats.driver_calls;
  }
  return calls;
}

aclrtStream use_device(int device) {
  const auto code = c10_npu::SetDevice(static_cast<c10::DeviceIndex>(device));
  if (code != ACL_ERROR_NONE) {
    throw std::runtime_error("SetDevice failed with code " + std::to_string(code));
  }
  return c10_npu::getCurrentNPUStream(static_cast<c10::DeviceIndex>(device)).stream(false);
}

}  // namespace bench

using namespace bench;

#pragma GCC visibility push(default)
extern "C" {

const char* bench_error() { return failure.c_str(); }

// Takes torch_npu's current allocator for subject `index`.
void bench_keep(int index) { subjects[index] = c10_npu::NPUCachingAllocator::allocator.load(); }

int bench_current(int index) {
  return subjects[index] == c10_npu::NPUCachingAllocator::allocator.load();
}

int bench_init(int devices) {
  return guarded([&] {
    device_count = devices;
    for (Allocator* allocator : subjects) allocator->init(devices);
    return 1;
  });
}

int bench_device(int index) { return subject(index).device; }

int bench_empty_cache(int index) {
  return guarded([&] {
    use_device(subject(index).device);
    subjects[index]->emptyCache(true);
    return 1;
  });
}

int bench_limit(int index, double fraction) {
  return guarded([&] {
    subjects[index]->setMemoryFraction(fraction, subject(index).device);
    return 1;
  });
}

Case* bench_open(int index, const char* kind, const std::int64_t* numbers) {
  return guarded([&] { return make(kind, subject(index), numbers).release(); });
}

Case* bench_open_replay(int index, const TraceEvent* events, std::size_t count,
                        const std::int64_t* stream_ids) {
  return guarded([&] { return make_replay(subject(index), events, count, stream_ids).release(); });
}

void bench_close(Case* opened) { delete opened; }

double bench_operations(const Case* opened) { return opened->operations(); }

// Nanoseconds of a round; 0 after a failure.
double bench_round(int index, Case* opened, std::uint64_t steps) {
  return guarded([&] {
    use_device(subject(index).device);
    return opened->round(steps);
  });
}

// The same without the operations.
double bench_loop(int index, Case* opened, std::uint64_t steps) {
  return guarded([&] {
    use_device(subject(index).device);
    return opened->loop(steps);
  });
}

// Times of single operations without driver calls, at most `capacity` of them, to `out`.
std::size_t bench_latencies(int index, Case* opened, std::uint64_t steps, std::uint32_t* out,
                            std::size_t capacity) {
  return guarded([&]() -> std::size_t {
    use_device(subject(index).device);
    std::vector<std::uint32_t> times;
    // Written once, so that no page is new when an operation is timed.
    times.resize(static_cast<std::size_t>(static_cast<double>(steps) * opened->operations()) + 1);
    times.clear();
    opened->latencies(steps, times);
    const std::size_t count = std::min(capacity, times.size());
    std::copy_n(times.begin(), count, out);
    return count;
  });
}

// How many times as much two threads get done as one where they share nothing.
double bench_two_threads() {
  return guarded([] { return two_threads(); });
}

// What reading the clock adds to a timed operation, in nanoseconds: the median of many.
double bench_clock_cost() {
  std::vector<std::uint32_t> times;
  times.reserve(100'000);
  {
    Latencies time(times);
    for (int i = 0; i < 100'000; ++i) time([] { asm volatile(""); });
  }
  if (times.empty()) return 0;
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

}  // extern "C"
#pragma GCC visibility pop
