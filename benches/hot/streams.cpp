// Blocks used on a second stream: the free records an event there.
#include <deque>

#include "bench.h"
#include "torch_npu/csrc/core/npu/NPUEvent.h"

namespace bench {

namespace {

c10_npu::NPUStream stream_of(int device, std::int64_t id) {
  return c10_npu::NPUStream(
      c10_npu::NPUStream::UNCHECKED,
      c10::Stream(c10::Stream::UNSAFE,
                  c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)),
                  id));
}

class RecordStreamCase final : public StepCase<RecordStreamCase> {
 public:
  RecordStreamCase(const Subject& subject, std::uint64_t bytes, std::int64_t stream_id)
      : allocator_(subject.allocator), bytes_(bytes), side_(stream_of(subject.device, stream_id)) {
    use_device(subject.device);
  }
  double operations() const override { return 3; }
  template <class Time>
  void step(Time& time, std::uint64_t) {
    c10::DataPtr block;
    time([&] { block = allocator_->allocate(bytes_); });
    time([&] { allocator_->recordStream(block, side_); });
    time([&] { block.clear(); });
  }

 private:
  Allocator* allocator_;
  std::uint64_t bytes_;
  c10_npu::NPUStream side_;
};

// What both allocators need an event for, without an allocator: recorded at the free, asked at the
// next allocation.
class EventCase final : public StepCase<EventCase> {
 public:
  EventCase(const Subject& subject, std::int64_t stream_id)
      : side_(stream_of(subject.device, stream_id)) {
    use_device(subject.device);
  }
  double operations() const override { return 3; }
  template <class Time>
  void step(Time& time, std::uint64_t) {
    if (idle_.empty()) idle_.push_back(std::make_unique<c10_npu::NPUEvent>(kFlag));
    std::unique_ptr<c10_npu::NPUEvent> event = std::move(idle_.back());
    idle_.pop_back();
    time([&] { event->record(side_); });
    pending_.push_back(std::move(event));
    time([&] {
      while (!pending_.empty() && pending_.front()->query()) {
        idle_.push_back(std::move(pending_.front()));
        pending_.pop_front();
      }
    });
  }

 private:
  static constexpr unsigned int kFlag = ACL_EVENT_CAPTURE_STREAM_PROGRESS;
  c10_npu::NPUStream side_;
  std::vector<std::unique_ptr<c10_npu::NPUEvent>> idle_;
  std::deque<std::unique_ptr<c10_npu::NPUEvent>> pending_;
};

}  // namespace

std::unique_ptr<Case> make_event(const Subject& subject, std::int64_t stream_id) {
  return std::make_unique<EventCase>(subject, stream_id);
}

std::unique_ptr<Case> make_record_stream(const Subject& subject, std::uint64_t bytes,
                                         std::int64_t stream_id) {
  return std::make_unique<RecordStreamCase>(subject, bytes, stream_id);
}

}  // namespace bench
