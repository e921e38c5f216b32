// Several threads, each with live blocks of its own, on one device or on one each.
#include <barrier>

#include "bench.h"

namespace bench {

namespace {

class ThreadsCase final : public Case {
 public:
  ThreadsCase(const Subject& subject, int threads, bool two_devices)
      : start_(threads + 1), end_(threads + 1), spans_(static_cast<std::size_t>(threads)) {
    for (int i = 0; i < threads; ++i) {
      const int device = two_devices && i % 2 == 1 ? subject.second_device : subject.device;
      workers_.emplace_back([this, allocator = subject.allocator, device, i] {
        work(allocator, device, static_cast<std::uint32_t>(i));
      });
    }
  }
  ~ThreadsCase() override {
    stopping_ = true;
    start_.arrive_and_wait();
    for (std::thread& worker : workers_) worker.join();
  }
  // A step is one replacement for every thread.
  double operations() const override { return 2.0 * static_cast<double>(workers_.size()); }
  double round(std::uint64_t steps) override {
    left_ = static_cast<std::int64_t>(steps * workers_.size());
    start_.arrive_and_wait();
    end_.arrive_and_wait();
    // From the first thread's start to the last one's end: this thread may wake up late.
    Clock::time_point start = spans_.front().start;
    Clock::time_point end = spans_.front().end;
    for (const Span& span : spans_) {
      start = std::min(start, span.start);
      end = std::max(end, span.end);
    }
    return nanoseconds(end - start);
  }

 private:
  static constexpr std::size_t kSlots = 1000;
  // Steps that a worker takes at a time: one that gets less of its processor leaves more of them to
  // the others, so that all are at work until the end.
  static constexpr std::int64_t kTaken = 256;

  struct Span {
    Clock::time_point start;
    Clock::time_point end;
  };

  void work(Allocator* allocator, int device, std::uint32_t seed) {
    Churn churn(allocator, use_device(device), draw(kSlots, 2 << 20, 1, seed + 1), kSlots);
    const Untimed untimed;
    std::uint64_t next = 0;
    for (;;) {
      start_.arrive_and_wait();
      if (stopping_) return;
      const auto start = Clock::now();
      for (std::int64_t left; (left = left_.fetch_sub(kTaken)) > 0;) {
        for (std::int64_t i = 0; i < std::min(left, kTaken); ++i) churn.step(untimed, next++);
      }
      spans_[seed] = {start, Clock::now()};
      end_.arrive_and_wait();
    }
  }

  std::barrier<> start_;
  std::barrier<> end_;
  // Set while the workers wait at `start_`: steps of the round that nobody has taken, or that there
  // is none any more.
  std::atomic<std::int64_t> left_ = 0;
  bool stopping_ = false;
  // By thread; read while the workers wait at `start_`.
  std::vector<Span> spans_;
  std::vector<std::thread> workers_;
};

// Adds and shifts, in registers alone; as many at a time as a processor has units for.
void calculate(std::uint64_t steps) {
  std::uint64_t a = 1;
  std::uint64_t b = 2;
  std::uint64_t c = 3;
  for (std::uint64_t i = 0; i < steps; ++i) {
    a += i ^ b;
    b += a >> 3;
    c ^= i + a;
  }
  asm volatile("" : : "r"(a), "r"(b), "r"(c));
}

// Nanoseconds from the first thread's start to the last one's end.
double calculate_on(int threads) {
  constexpr std::uint64_t kSteps = 20'000'000;
  std::barrier<> start(threads + 1);
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&] {
      start.arrive_and_wait();
      calculate(kSteps);
    });
  }
  start.arrive_and_wait();
  const auto begin = Clock::now();
  for (std::thread& worker : workers) worker.join();
  return nanoseconds(Clock::now() - begin);
}

}  // namespace

double two_threads() {
  std::vector<double> ratios;
  for (int round = 0; round < 9; ++round) {
    const double one = calculate_on(1);
    ratios.push_back(2 * one / calculate_on(2));
  }
  std::nth_element(ratios.begin(), ratios.begin() + 4, ratios.end());
  return ratios[4];
}

std::unique_ptr<Case> make_threads(const Subject& subject, int threads, bool two_devices) {
  return std::make_unique<ThreadsCase>(subject, threads, two_devices);
}

}  // namespace bench
