// Statistics and snapshots.
#include "bench.h"

namespace bench {

namespace {

class StatsCase final : public StepCase<StatsCase> {
 public:
  explicit StatsCase(const Subject& subject)
      : allocator_(subject.allocator), device_(static_cast<c10::DeviceIndex>(subject.device)) {
    block_ = allocator_->raw_alloc_with_stream(512, use_device(subject.device));
  }
  ~StatsCase() override { allocator_->raw_delete(block_); }
  double operations() const override { return 1; }
  template <class Time>
  void step(Time& time, std::uint64_t) {
    time([&] {
      const auto stats = allocator_->getDeviceStats(device_);
      if (stats.allocation[0].current < 1) throw std::runtime_error("a live block is not counted");
    });
  }

 private:
  Allocator* allocator_;
  c10::DeviceIndex device_;
  void* block_;
};

class SnapshotCase final : public StepCase<SnapshotCase> {
 public:
  SnapshotCase(const Subject& subject, std::uint64_t slots)
      : allocator_(subject.allocator),
        slots_(slots),
        churn_(subject.allocator, use_device(subject.device), draw(slots, 2 << 20, 1, 1), slots) {
    // Mixes the sizes, so that blocks of all kinds lie side by side.
    const Untimed untimed;
    for (std::uint64_t i = 0; i < 4 * slots; ++i) churn_.step(untimed, i);
  }
  double operations() const override { return 1; }
  template <class Time>
  void step(Time& time, std::uint64_t) {
    time([&] {
      const auto snapshot = allocator_->snapshot();
      std::size_t live = 0;
      for (const auto& segment : snapshot.segments) {
        for (const auto& block : segment.blocks) live += block.allocated;
      }
      if (live < slots_) throw std::runtime_error("the snapshot lacks live blocks");
    });
  }

 private:
  Allocator* allocator_;
  std::uint64_t slots_;
  Churn churn_;
};

}  // namespace

std::unique_ptr<Case> make_stats(const Subject& subject) {
  return std::make_unique<StatsCase>(subject);
}

std::unique_ptr<Case> make_snapshot(const Subject& subject, std::uint64_t slots) {
  return std::make_unique<SnapshotCase>(subject, slots);
}

}  // namespace bench
