// Several threads, each with live blocks of its own, on one device or on one each; or with nothing
// in common at all, which tells how much of two threads the machine can run at a time.
#include <atomic>
#include <barrier>

#include "bench.h"

namespace bench {

namespace {

// What an operation cannot do without, a lock and a probe of a table, in cache lines that are
// nobody else's.
class alignas(128) Alone {
 public:
  template <class Time>
  void step(Time& time, std::uint64_t) {
    time([this] { probe(); });
    time([this] { probe(); });
  }

 private:
  static constexpr std::size_t kWords = 1 << 13;

  void probe() {
    bool taken = false;
    lock_.compare_exchange_strong(taken, true, std::memory_order_acquire);
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    table_[random_ % kWords] += random_;
    lock_.store(false, std::memory_order_release);
  }

  std::atomic<bool> lock_{false};
  std::uint64_t random_ = 88172645463325252;
  std::vector<std::uint64_t> table_ = std::vector<std::uint64_t>(kWords);
};

class ThreadsCase final : public Case {
 public:
  // `work(thread)` makes what a thread repeats.
  template <class Work>
  ThreadsCase(int threads, Work work)
      : start_(threads + 1), end_(threads + 1), spans_(static_cast<std::size_t>(threads)) {
    for (int i = 0; i < threads; ++i) {
      workers_.emplace_back([this, work, i] {
        const std::unique_ptr own = work(i);
        repeat(*own, static_cast<std::size_t>(i));
      });
    }
  }
  ~ThreadsCase() override {
    steps_ = 0;
    start_.arrive_and_wait();
    for (std::thread& worker : workers_) worker.join();
  }
  // A step is one replacement by every thread.
  double operations() const override { return 2.0 * static_cast<double>(workers_.size()); }
  double round(std::uint64_t steps) override {
    steps_ = steps;
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
  struct Span {
    Clock::time_point start;
    Clock::time_point end;
  };

  template <class Work>
  void repeat(Work& work, std::size_t thread) {
    const Untimed untimed;
    std::uint64_t next = 0;
    for (;;) {
      start_.arrive_and_wait();
      const std::uint64_t steps = steps_;
      if (steps == 0) return;
      const auto start = Clock::now();
      for (std::uint64_t i = 0; i < steps; ++i) work.step(untimed, next++);
      spans_[thread] = {start, Clock::now()};
      end_.arrive_and_wait();
    }
  }

  std::barrier<> start_;
  std::barrier<> end_;
  // Written while the workers wait at `start_`.
  std::uint64_t steps_ = 0;
  // By thread; read while the workers wait at `start_`.
  std::vector<Span> spans_;
  std::vector<std::thread> workers_;
};

}  // namespace

std::unique_ptr<Case> make_threads(const Subject& subject, int threads, bool two_devices) {
  return std::make_unique<ThreadsCase>(threads, [subject, two_devices](int thread) {
    constexpr std::size_t kSlots = 1000;
    const int device = two_devices && thread % 2 == 1 ? subject.second_device : subject.device;
    const auto seed = static_cast<std::uint32_t>(thread) + 1;
    return std::make_unique<Churn>(subject.allocator, use_device(device),
                                   draw(kSlots, 2 << 20, 1, seed), kSlots);
  });
}

std::unique_ptr<Case> make_alone(int threads) {
  return std::make_unique<ThreadsCase>(threads, [](int) { return std::make_unique<Alone>(); });
}

}  // namespace bench
