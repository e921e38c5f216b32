// A recorded trace, event by event.
#include "bench.h"

namespace bench {

namespace {

/// Numbers blocks anew: the number of one that was freed is the next one's, as a program stores
/// what it allocates where what it freed was. (With a number for each block the table of pointers,
/// of megabytes, would go through the caches.) Returns for each number whether its block is alive
/// at the end.
std::vector<bool> give_slots(std::vector<TraceEvent>& events) {
  // Of each block; what reads traces numbers them from 0 on and lets none be used that is not
  // alive.
  std::vector<std::uint32_t> slots;
  std::vector<std::uint32_t> vacant;
  std::vector<bool> alive;
  for (TraceEvent& event : events) {
    if (event.kind == 'a') {
      if (vacant.empty()) {
        vacant.push_back(static_cast<std::uint32_t>(alive.size()));
        alive.push_back(false);
      }
      slots.resize(std::max<std::size_t>(slots.size(), event.id + 1));
      slots[event.id] = vacant.back();
      vacant.pop_back();
      alive[slots[event.id]] = true;
    }
    if (event.kind == 'a' || event.kind == 'f' || event.kind == 'u') {
      event.id = slots.at(event.id);
    }
    if (event.kind == 'f') {
      vacant.push_back(event.id);
      alive[event.id] = false;
    }
  }
  return alive;
}

class ReplayCase final : public Case {
 public:
  ReplayCase(const Subject& subject, const TraceEvent* events, std::size_t count,
             const std::int64_t* stream_ids)
      : allocator_(subject.allocator), device_(subject.device), events_(events, events + count) {
    use_device(device_);
    const std::vector<bool> alive = give_slots(events_);
    live_.resize(alive.size());
    for (std::uint32_t i = 0; i < alive.size(); ++i) {
      if (alive[i]) left_.push_back(i);
    }
    std::uint16_t streams = 0;
    for (const TraceEvent& event : events_) {
      if (event.stream != kEveryStream)
        streams = std::max<std::uint16_t>(streams, event.stream + 1);
      operations_ += event.kind == 'a' || event.kind == 'f' || event.kind == 'u';
    }
    for (std::uint16_t i = 0; i < streams; ++i) {
      const c10::Device device(c10::DeviceType::PrivateUse1,
                               static_cast<c10::DeviceIndex>(device_));
      streams_.emplace_back(c10_npu::NPUStream::UNCHECKED,
                            c10::Stream(c10::Stream::UNSAFE, device, stream_ids[i]));
      handles_.push_back(streams_.back().stream(false));
    }
  }

  double operations() const override { return static_cast<double>(operations_); }
  // A step is the whole trace.
  std::uint64_t fixed_steps() const override { return 1; }

  double round(std::uint64_t) override {
    const Untimed untimed;
    return pass(untimed);
  }
  double loop(std::uint64_t) override {
    const LeftOut left_out;
    return pass(left_out);
  }
  void latencies(std::uint64_t, std::vector<std::uint32_t>& out) override {
    Latencies time(out);
    pass(time);
  }

 private:
  template <class Time>
  double pass(Time& time) {
    use_device(device_);
    const c10::DeleterFnPtr deleter = allocator_->raw_deleter();
    const c10::Device device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device_));
    Clock::duration waited{};
    const auto start = Clock::now();
    for (const TraceEvent& event : events_) {
      // As short as can be: a program knows which of the two it calls, and has the pointer at hand.
      if (event.kind == 'f') {
        time([&] { allocator_->raw_delete(live_[event.id]); });
      } else if (event.kind == 'a') {
        time([&] {
          live_[event.id] = allocator_->raw_alloc_with_stream(event.bytes, handles_[event.stream]);
        });
      } else if (event.kind == 'u') {
        // Only lends the block: the trace frees it.
        void* block = live_[event.id];
        c10::DataPtr ptr(block, block, deleter, device);
        time([&] { allocator_->recordStream(ptr, streams_[event.stream]); });
        ptr.release_context();
      } else if (event.kind == 'e') {
        if constexpr (Time::kRuns) allocator_->emptyCache(true);
      } else if (event.kind == 's') {
        if constexpr (Time::kRuns) waited += wait(event);
      } else {
        throw std::runtime_error("unknown event in a trace");
      }
    }
    const auto end = Clock::now();
    if constexpr (Time::kRuns) {
      for (const std::uint32_t id : left_) allocator_->raw_delete(live_[id]);
    }
    return nanoseconds(end - start - waited);
  }

  /// What the wait takes is not the allocator's time.
  Clock::duration wait(const TraceEvent& event) {
    const auto before = Clock::now();
    if (event.stream == kEveryStream) {
      c10_npu::npuSynchronizeDevice(true);
    } else {
      streams_[event.stream].synchronize();
    }
    return Clock::now() - before;
  }

  Allocator* allocator_;
  int device_;
  std::vector<TraceEvent> events_;
  std::uint64_t operations_ = 0;
  std::vector<void*> live_;
  /// Numbers of what the trace does not free.
  std::vector<std::uint32_t> left_;
  std::vector<c10_npu::NPUStream> streams_;
  std::vector<aclrtStream> handles_;
};

}  // namespace

std::unique_ptr<Case> make_replay(const Subject& subject, const TraceEvent* events,
                                  std::size_t count, const std::int64_t* stream_ids) {
  return std::make_unique<ReplayCase>(subject, events, count, stream_ids);
}

}  // namespace bench
