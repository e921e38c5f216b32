// Blocks used on a second stream: the free records an event there.
#include "bench.h"

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

}  // namespace

std::unique_ptr<Case> make_record_stream(const Subject& subject, std::uint64_t bytes,
                                         std::int64_t stream_id) {
  return std::make_unique<RecordStreamCase>(subject, bytes, stream_id);
}

}  // namespace bench
