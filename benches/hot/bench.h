// What the cases share.
#pragma once

#include "pch.h"
#include "trace_event.h"

namespace bench {

using Allocator = c10_npu::NPUCachingAllocator::NPUAllocator;
using Clock = std::chrono::steady_clock;

inline double nanoseconds(Clock::duration time) {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

// Driver calls of all devices so far; 0 where the runtime does not tell (any but the simulator).
std::uint64_t driver_calls();

// Who is measured, and where: two allocators never share a device, so that neither's memory
// limits the other.
struct Subject {
  Allocator* allocator;
  int device;
  // For cases on two devices.
  int second_device;
};

// Handle of the current stream of a device; makes the device current on the calling thread.
aclrtStream use_device(int device);

// Collects the time of single operations. Those of a batch in which the driver was called are
// dropped.
class Latencies {
 public:
  static constexpr bool kRuns = true;
  explicit Latencies(std::vector<std::uint32_t>& out) : out_(out), calls_(driver_calls()) {}
  ~Latencies() { end_batch(); }
  Latencies(const Latencies&) = delete;
  Latencies& operator=(const Latencies&) = delete;

  template <class Operation>
  void operator()(Operation&& operation) {
    const auto start = Clock::now();
    operation();
    const auto end = Clock::now();
    out_.push_back(static_cast<std::uint32_t>(std::min(nanoseconds(end - start), 4e9)));
    if (out_.size() - kept_ == kBatch) end_batch();
  }

 private:
  static constexpr std::size_t kBatch = 1000;

  void end_batch() {
    const std::uint64_t calls = driver_calls();
    if (calls != calls_) out_.resize(kept_);
    kept_ = out_.size();
    calls_ = calls;
  }

  std::vector<std::uint32_t>& out_;
  std::size_t kept_ = 0;
  std::uint64_t calls_;
};

// Runs an operation and nothing else.
struct Untimed {
  static constexpr bool kRuns = true;
  template <class Operation>
  void operator()(Operation&& operation) const {
    operation();
  }
};

// Leaves an operation out, but not what leads to it.
struct LeftOut {
  static constexpr bool kRuns = false;
  template <class Operation>
  void operator()(Operation&& operation) const {
    asm volatile("" : : "r"(&operation) : "memory");
  }
};

// One thing to measure, with its own live blocks. `round` is called many times; the first ones
// warm up.
class Case {
 public:
  virtual ~Case() = default;
  // `steps` times the case's unit of work. Returns the nanoseconds they took.
  virtual double round(std::uint64_t steps) = 0;
  // The same without the operations: what the benchmark's own loop takes. 0 where that is not
  // known.
  virtual double loop(std::uint64_t) { return 0; }
  // The same as a round, each operation timed; nothing where single operations make no sense.
  virtual void latencies(std::uint64_t, std::vector<std::uint32_t>&) {}
  // Operations in a step.
  virtual double operations() const = 0;
  // For cases whose length is fixed: the steps of a round. 0: any number.
  virtual std::uint64_t fixed_steps() const { return 0; }
};

// A case whose steps are the same whether operations are timed, left out or neither: `Derived` has
// `template <class Time> void step(Time& time, std::uint64_t index)`.
template <class Derived>
class StepCase : public Case {
 public:
  double round(std::uint64_t steps) override {
    const Untimed untimed;
    const double time = pass(untimed, steps);
    next_ += steps;
    return time;
  }
  double loop(std::uint64_t steps) override {
    const LeftOut left_out;
    return pass(left_out, steps);
  }
  void latencies(std::uint64_t steps, std::vector<std::uint32_t>& out) override {
    Latencies time(out);
    pass(time, steps);
    next_ += steps;
  }

 private:
  template <class Time>
  double pass(Time& time, std::uint64_t steps) {
    const auto start = Clock::now();
    for (std::uint64_t i = 0; i < steps; ++i) self().step(time, next_ + i);
    return nanoseconds(Clock::now() - start);
  }
  Derived& self() { return static_cast<Derived&>(*this); }
  std::uint64_t next_ = 0;
};

// Requests drawn once and cycled, a power of two of them: the same for both allocators.
struct Request {
  std::uint32_t slot;
  std::uint64_t bytes;
};
// `largest` is the upper end of the sizes, 512 bytes the lower one. `skew` 1: every octave is as
// likely; more: small sizes are more frequent.
std::vector<Request> draw(std::size_t slots, std::uint64_t largest, double skew,
                          std::uint32_t seed);

// Live blocks, replaced one by one at random.
class Churn {
 public:
  Churn(Allocator* allocator, aclrtStream stream, std::vector<Request> requests, std::size_t slots);
  ~Churn();
  Churn(const Churn&) = delete;
  Churn& operator=(const Churn&) = delete;

  template <class Time>
  void step(Time& time, std::uint64_t index) {
    // Their number is a power of two: no division.
    const std::uint64_t last = requests_.size() - 1;
    const Request& request = requests_[index & last];
    // A program has the pointers that it gives back at hand: the table's cache misses are none of
    // the allocator's.
    __builtin_prefetch(&live_[requests_[(index + kAhead) & last].slot]);
    void*& slot = live_[request.slot];
    time([&] { allocator_->raw_delete(slot); });
    time([&] { slot = allocator_->raw_alloc_with_stream(request.bytes, stream_); });
  }

 private:
  // Steps by which the table is asked for early.
  static constexpr std::uint64_t kAhead = 4;

  Allocator* allocator_;
  aclrtStream stream_;
  std::vector<Request> requests_;
  std::vector<void*> live_;
};

// The cases, by file.
std::unique_ptr<Case> make_pair(const Subject&, std::uint64_t bytes);
std::unique_ptr<Case> make_churn(const Subject&, std::uint64_t slots, std::uint64_t largest,
                                 double skew);
std::unique_ptr<Case> make_data_ptr(const Subject&, std::uint64_t bytes);
std::unique_ptr<Case> make_history(const Subject&, std::uint64_t slots);
std::unique_ptr<Case> make_record_stream(const Subject&, std::uint64_t bytes,
                                         std::int64_t stream_id);
std::unique_ptr<Case> make_event(const Subject&, std::int64_t stream_id);
std::unique_ptr<Case> make_stats(const Subject&);
std::unique_ptr<Case> make_snapshot(const Subject&, std::uint64_t slots);
std::unique_ptr<Case> make_threads(const Subject&, int threads, bool two_devices);
// Throughput of two threads that share nothing, as a multiple of one's: what the machine gives.
double two_threads();
std::unique_ptr<Case> make_replay(const Subject&, const TraceEvent* events, std::size_t count,
                                  const std::int64_t* stream_ids);

}  // namespace bench
