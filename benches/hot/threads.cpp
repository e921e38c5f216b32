// Several threads, each with live blocks of its own, on one device or on one each.
#include <barrier>

#include "bench.h"

namespace bench {

namespace {

class ThreadsCase final : public Case {
 public:
  ThreadsCase(const Subject& subject, int threads, bool two_devices)
      : start_(threads + 1), end_(threads + 1) {
    for (int i = 0; i < threads; ++i) {
      const int device = two_devices && i % 2 == 1 ? subject.second_device : subject.device;
      workers_.emplace_back([this, allocator = subject.allocator, device, i] {
        work(allocator, device, static_cast<std::uint32_t>(i));
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
    const auto start = Clock::now();
    end_.arrive_and_wait();
    return nanoseconds(Clock::now() - start);
  }

 private:
  static constexpr std::size_t kSlots = 1000;

  void work(Allocator* allocator, int device, std::uint32_t seed) {
    Churn churn(allocator, use_device(device), draw(kSlots, 2 << 20, 1, seed + 1), kSlots);
    const Untimed untimed;
    std::uint64_t next = 0;
    for (;;) {
      start_.arrive_and_wait();
      const std::uint64_t steps = steps_;
      if (steps == 0) return;
      for (std::uint64_t i = 0; i < steps; ++i) churn.step(untimed, next++);
      end_.arrive_and_wait();
    }
  }

  std::barrier<> start_;
  std::barrier<> end_;
  // Written while the workers wait at `start_`.
  std::uint64_t steps_ = 0;
  std::vector<std::thread> workers_;
};

}  // namespace

std::unique_ptr<Case> make_threads(const Subject& subject, int threads, bool two_devices) {
  return std::make_unique<ThreadsCase>(subject, threads, two_devices);
}

}  // namespace bench
