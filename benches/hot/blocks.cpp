// Allocating and freeing on one thread.
#include <bit>

#include "bench.h"

namespace bench {

std::vector<Request> draw(std::size_t slots, std::uint64_t largest, double skew,
                          std::uint32_t seed) {
  // More than any processor predicts.
  constexpr std::size_t kRequests = 1 << 16;
  // So that at most two in a hundred blocks stay as they are when all requests are repeated, not a
  // third.
  constexpr std::size_t kRequestsOfSlot = 4;
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> unit(0, 1);
  const double octaves = std::log2(static_cast<double>(largest) / 512);
  std::vector<Request> requests(std::bit_ceil(std::max(kRequests, kRequestsOfSlot * slots)));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const double size = 512 * std::exp2(octaves * std::pow(unit(random), skew));
    requests[i] = {static_cast<std::uint32_t>(random() % slots), static_cast<std::uint64_t>(size)};
  }
  return requests;
}

Churn::Churn(Allocator* allocator, aclrtStream stream, std::vector<Request> requests,
             std::size_t slots)
    : allocator_(allocator), stream_(stream), requests_(std::move(requests)), live_(slots) {
  for (std::size_t i = 0; i < slots; ++i) {
    live_[i] = allocator_->raw_alloc_with_stream(requests_[i].bytes, stream_);
  }
}

Churn::~Churn() {
  for (void* block : live_) allocator_->raw_delete(block);
}

namespace {

class PairCase final : public StepCase<PairCase> {
 public:
  PairCase(const Subject& subject, std::uint64_t bytes)
      : allocator_(subject.allocator), stream_(use_device(subject.device)), bytes_(bytes) {}
  double operations() const override { return 2; }
  template <class Time>
  void step(Time& time, std::uint64_t) {
    void* block = nullptr;
    time([&] { block = allocator_->raw_alloc_with_stream(bytes_, stream_); });
    time([&] { allocator_->raw_delete(block); });
  }

 private:
  Allocator* allocator_;
  aclrtStream stream_;
  std::uint64_t bytes_;
};

class ChurnCase final : public StepCase<ChurnCase> {
 public:
  ChurnCase(const Subject& subject, std::uint64_t slots, std::uint64_t largest, double skew)
      : churn_(subject.allocator, use_device(subject.device), draw(slots, largest, skew, 1),
               slots) {}
  double operations() const override { return 2; }
  template <class Time>
  void step(Time& time, std::uint64_t index) {
    churn_.step(time, index);
  }

 private:
  Churn churn_;
};

// As tensors do it: current device and stream looked up, freed by the deleter.
class DataPtrCase final : public StepCase<DataPtrCase> {
 public:
  DataPtrCase(const Subject& subject, std::uint64_t bytes)
      : allocator_(subject.allocator), bytes_(bytes) {
    use_device(subject.device);
  }
  double operations() const override { return 2; }
  template <class Time>
  void step(Time& time, std::uint64_t) {
    c10::DataPtr block;
    time([&] { block = allocator_->allocate(bytes_); });
    time([&] { block.clear(); });
  }

 private:
  c10::Allocator* allocator_;
  std::uint64_t bytes_;
};

// Stands for a recorded stack, without the time that gathering one takes.
struct NoStack final : c10::GatheredContext {};
std::shared_ptr<c10::GatheredContext> no_stack() { return std::make_shared<NoStack>(); }

class HistoryCase final : public StepCase<HistoryCase> {
 public:
  HistoryCase(const Subject& subject, std::uint64_t slots) : allocator_(subject.allocator) {
    using c10_npu::NPUCachingAllocator::RecordContext;
    const aclrtStream stream = use_device(subject.device);
    allocator_->recordHistory(true, &no_stack, kEntries, RecordContext::ALL);
    churn_ = std::make_unique<Churn>(allocator_, stream, draw(slots, 2 << 20, 1, 1), slots);
  }
  ~HistoryCase() override {
    using c10_npu::NPUCachingAllocator::RecordContext;
    churn_.reset();
    allocator_->recordHistory(false, nullptr, 1, RecordContext::NEVER);
  }
  double operations() const override { return 2; }
  template <class Time>
  void step(Time& time, std::uint64_t index) {
    churn_->step(time, index);
  }

 private:
  static constexpr std::size_t kEntries = 100'000;
  Allocator* allocator_;
  std::unique_ptr<Churn> churn_;
};

}  // namespace

std::unique_ptr<Case> make_pair(const Subject& subject, std::uint64_t bytes) {
  return std::make_unique<PairCase>(subject, bytes);
}

std::unique_ptr<Case> make_churn(const Subject& subject, std::uint64_t slots, std::uint64_t largest,
                                 double skew) {
  return std::make_unique<ChurnCase>(subject, slots, largest, skew);
}

std::unique_ptr<Case> make_data_ptr(const Subject& subject, std::uint64_t bytes) {
  return std::make_unique<DataPtrCase>(subject, bytes);
}

std::unique_ptr<Case> make_history(const Subject& subject, std::uint64_t slots) {
  return std::make_unique<HistoryCase>(subject, slots);
}

}  // namespace bench
