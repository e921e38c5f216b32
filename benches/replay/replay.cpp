// One trace on torch_npu's current allocator, event by event, over the simulated device.
//
// The traced program's work is modelled: each allocation, each use on another stream and each free
// puts a kernel on the stream concerned that touches the block, and the other stream waits for the
// block's own first, so that events are pending and memory is in use for as long as the device lags
// behind the host. The lag is the depth of the simulated streams, the time of a kernel one of the
// simulator's knobs; the caller sets both in the environment.
#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "pch.h"
#include "simulator.h"
#include "trace_event.h"

namespace bench {

namespace {

using Allocator = c10_npu::NPUCachingAllocator::NPUAllocator;

constexpr int kDevice = 0;

// What happened since the last sample: the most of each.
struct Sample {
  std::size_t event;
  std::uint64_t live;
  std::uint64_t reserved;
  std::uint64_t calls;
};

class Replay {
 public:
  Replay(const TraceEvent* events, std::size_t count, const std::int64_t* stream_ids,
         std::size_t stream_count, std::size_t samples)
      : events_(events),
        count_(count),
        every_(std::max<std::size_t>(1, count / std::max<std::size_t>(1, samples))) {
    std::size_t blocks = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (events[i].kind != 'a') continue;
      blocks = std::max<std::size_t>(blocks, events[i].id + 1);
      ++all_allocations_;
    }
    blocks_.resize(blocks);
    for (std::size_t i = 0; i < stream_count; ++i) {
      const c10::Device device(c10::DeviceType::PrivateUse1, kDevice);
      streams_.emplace_back(c10_npu::NPUStream::UNCHECKED,
                            c10::Stream(c10::Stream::UNSAFE, device, stream_ids[i]));
      handles_.push_back(streams_.back().stream(false));
    }
    auto distinct = handles_;
    std::sort(distinct.begin(), distinct.end());
    if (std::unique(distinct.begin(), distinct.end()) != distinct.end()) {
      throw std::runtime_error("the trace has " + std::to_string(stream_count) +
                               " streams, more than torch_npu hands out");
    }
  }

  std::string run() {
    sim_.reset();
    base_ = sim_.memory().used;
    seen_ = sim_.memory();
    counts_ = sim_.calls();
    const CallCounts start = counts_;
    const std::uint64_t start_ns = sim_.now();
    std::size_t at = 0;
    bool out_of_memory = false;
    for (; at < count_; ++at) {
      try {
        step(events_[at]);
      } catch (const c10::OutOfMemoryError& error) {
        out_of_memory = true;
        break;
      }
      observe(at);
    }
    account();
    // What happened since the last sample, and where memory ran out.
    if (out_of_memory) take_in();
    if (taken_ > 0 || samples_.empty()) end_sample(at);
    const std::uint64_t end_ns = sim_.now();
    return report(out_of_memory ? static_cast<std::int64_t>(at) : -1, counts_ - start,
                  end_ns - start_ns);
  }

 private:
  struct Block {
    void* addr = nullptr;
    std::uint64_t bytes = 0;
    std::uint16_t stream = 0;
  };

  // What a stream had been given, and how often that is waited for yet.
  struct Awaited {
    c10_npu::NPUEvent event;
    std::uint64_t times;
  };

  void step(const TraceEvent& event) {
    switch (event.kind) {
      case 'a': {
        Block& block = blocks_.at(event.id);
        void* handle = handles_.at(event.stream);
        if (allocations_ == all_allocations_ / 2) half_ = sim_.memory().calls;
        block = {allocator().raw_alloc_with_stream(event.bytes, handle), event.bytes, event.stream};
        ++allocations_;
        live_ += event.bytes;
        if (block.addr != nullptr) sim_.launch(handle, block.addr, block.bytes);
        break;
      }
      case 't':
        try_request(event);
        break;
      case 'f': {
        Block& block = blocks_.at(event.id);
        live_ -= block.bytes;
        if (block.addr != nullptr) {
          sim_.launch(handles_[block.stream], block.addr, block.bytes);
          allocator().raw_delete(block.addr);
        }
        block = {};
        break;
      }
      case 'u': {
        const Block& block = blocks_.at(event.id);
        if (block.addr == nullptr) break;
        if (block.stream != event.stream) order(streams_[block.stream], streams_.at(event.stream));
        sim_.launch(handles_.at(event.stream), block.addr, block.bytes);
        // Only lends the block: the trace frees it.
        c10::DataPtr lent(block.addr, block.addr, allocator().raw_deleter(),
                          c10::Device(c10::DeviceType::PrivateUse1, kDevice));
        allocator().recordStream(lent, streams_.at(event.stream));
        lent.release_context();
        break;
      }
      case 'e':
        by_program([&] { allocator().emptyCache(true); });
        break;
      case 's':
        by_program([&] {
          if (event.stream == kEveryStream) {
            c10_npu::npuSynchronizeDevice(true);
          } else {
            streams_.at(event.stream).synchronize();
          }
        });
        break;
      case 'r':
        waited_for_.push_back({c10_npu::NPUEvent(), event.bytes});
        waited_for_.back().event.record(streams_.at(event.stream));
        break;
      case 'w': {
        Awaited& awaited = waited_for_.at(event.id);
        by_program([&] { awaited.event.synchronize(); });
        if (--awaited.times == 0) awaited.event = {};
        break;
      }
      default:
        throw std::runtime_error("unknown event in a trace");
    }
  }

  // The program goes on without the memory: it is never part of what is alive.
  void try_request(const TraceEvent& event) {
    void* handle = handles_.at(event.stream);
    void* addr = nullptr;
    try {
      addr = allocator().raw_alloc_with_stream(event.bytes, handle);
    } catch (const c10::OutOfMemoryError&) {
      return;
    }
    if (addr == nullptr) return;
    // As of any block: one for its allocation, one for its free.
    sim_.launch(handle, addr, event.bytes);
    sim_.launch(handle, addr, event.bytes);
    allocator().raw_delete(addr);
  }

  // What `after` is given from now on starts when `before` has done what it was given so far.
  static void order(const c10_npu::NPUStream& before, const c10_npu::NPUStream& after) {
    c10_npu::NPUEvent event;
    event.record(before);
    event.block(after);
  }

  // What the program asked for itself is no wait of the allocator's.
  template <class Act>
  void by_program(Act act) {
    const CallCounts before = sim_.calls();
    act();
    CallCounts spent = sim_.calls() - before;
    std::fill_n(spent.begin(), kMemoryCalls, CallCount{});
    program_ += spent;
  }

  void observe(std::size_t at) {
    const Memory now = sim_.memory();
    if (now.calls != seen_.calls) account();
    take_in();
    peak_live_ = std::max(peak_live_, live_);
    if ((at + 1) % every_ == 0) end_sample(at + 1);
  }

  void take_in() {
    ++taken_;
    sample_.live = std::max(sample_.live, live_);
    sample_.reserved = std::max(sample_.reserved, sim_.memory().used - base_);
  }

  void end_sample(std::size_t event) {
    sample_.event = event;
    sample_.calls = sim_.memory().calls;
    samples_.push_back(sample_);
    sample_ = {};
    taken_ = 0;
  }

  // Splits the memory calls since the last account: those without which the device's memory could
  // not have grown to a new peak are growth.
  void account() {
    const Memory now = sim_.memory();
    const CallCounts counts = sim_.calls();
    if (now.peak_used > seen_.peak_used) {
      // A refused request may have held more for a moment.
      sample_.reserved = std::max(sample_.reserved, now.peak_used - base_);
      const CallCounts delta = counts - counts_;
      growth_ += delta[kMalloc];
      growth_ += delta[kMallocPhysical];
      growth_ += delta[kReserveAddress];
      // Each new handle is mapped once.
      const CallCount& map = delta[kMap];
      const std::uint64_t first = std::min(map.count, delta[kMallocPhysical].count);
      if (first > 0) {
        growth_.count += first;
        growth_.ns += map.ns / map.count * first;
      }
    }
    counts_ = counts;
    seen_ = now;
  }

  std::string report(std::int64_t out_of_memory_at, CallCounts total, std::uint64_t virtual_ns) {
    CallCount memory;
    for (int i = 0; i < kMemoryCalls; ++i) memory += total[i];
    const CallCount late = memory - growth_;
    CallCounts own = total;
    CallCount waits;
    for (int i = kMemoryCalls; i < kCalls; ++i) {
      own[i] = total[i] - program_[i];
      waits += own[i];
    }
    const auto stats = allocator().getDeviceStats(kDevice);
    std::ostringstream out;
    out << "{\"out_of_memory_at\":";
    if (out_of_memory_at < 0) {
      out << "null";
    } else {
      out << out_of_memory_at;
    }
    out << ",\"allocations\":" << allocations_ << ",\"peak_live\":" << peak_live_
        << ",\"peak_reserved\":" << seen_.peak_used - base_
        << ",\"peak_reserved_stat\":" << stats.reserved_bytes[0].peak
        << ",\"retries\":" << stats.num_alloc_retries << ",\"hazards\":" << sim_.hazards()
        << ",\"memory_calls\":" << memory.count << ",\"memory_ns\":" << memory.ns
        << ",\"late_calls\":" << late.count << ",\"late_ns\":" << late.ns
        << ",\"second_half_calls\":" << second_half(out_of_memory_at < 0)
        << ",\"device_syncs\":" << own[kSyncDevice].count << ",\"waits\":" << waits.count
        << ",\"wait_ns\":" << waits.ns + waits.wait_ns << ",\"virtual_ns\":" << virtual_ns
        << ",\"calls\":{";
    bool first = true;
    for (int i = 0; i < kCalls; ++i) {
      if (own[i].count == 0) continue;
      out << (first ? "" : ",") << '"' << name_of(static_cast<Call>(i)) << "\":" << own[i].count;
      first = false;
    }
    out << "},\"timeline\":[";
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      const Sample& sample = samples_[i];
      out << (i == 0 ? "" : ",") << '[' << sample.event << ',' << sample.live << ','
          << sample.reserved << ',' << sample.calls << ']';
    }
    out << "]}";
    return out.str();
  }

  // Memory calls in the second half of the allocations, as JSON.
  std::string second_half(bool completed) const {
    return completed && allocations_ > 0 ? std::to_string(seen_.calls - half_) : "null";
  }

  static Allocator& allocator() { return *c10_npu::NPUCachingAllocator::allocator.load(); }

  const TraceEvent* events_;
  std::size_t count_;
  // Events of a sample.
  std::size_t every_;
  Simulator sim_;
  std::vector<c10_npu::NPUStream> streams_;
  std::vector<aclrtStream> handles_;
  std::vector<Block> blocks_;
  std::vector<Awaited> waited_for_;
  std::uint64_t live_ = 0;
  std::uint64_t peak_live_ = 0;
  std::uint64_t allocations_ = 0;
  // Of the whole trace.
  std::uint64_t all_allocations_ = 0;
  // Memory calls before the second half of the allocations.
  std::uint64_t half_ = 0;
  // Device memory in use before the first event.
  std::uint64_t base_ = 0;
  Memory seen_{};
  CallCounts counts_{};
  CallCounts program_{};
  CallCount growth_;
  Sample sample_{};
  // How often it was taken in.
  std::size_t taken_ = 0;
  std::vector<Sample> samples_;
};

std::string failure;
std::string result;

template <class Act>
bool guarded(Act act) noexcept {
  failure.clear();
  try {
    act();
    return true;
  } catch (const std::exception& error) {
    failure = error.what();
  }
  if (failure.empty()) failure = "an exception without a text";
  return false;
}

}  // namespace

}  // namespace bench

#pragma GCC visibility push(default)
extern "C" {

const char* replay_error() { return bench::failure.c_str(); }

// Which allocator is torch_npu's current one; to tell whether the plug-in took its place.
const void* replay_allocator() { return c10_npu::NPUCachingAllocator::allocator.load(); }

// The simulated device's memory, in bytes, and whether a handle may be mapped twice. To be called
// before the device is used.
int replay_prepare(std::uint64_t capacity, int aliases) {
  return bench::guarded([&] {
    const bench::Simulator sim;
    sim.set_capacity(capacity);
    sim.allow_aliases(aliases != 0);
  });
}

// Replays; the result is JSON. Null after a failure.
const char* replay_run(const bench::TraceEvent* events, std::size_t count,
                       const std::int64_t* stream_ids, std::size_t streams, std::size_t samples) {
  const bool done = bench::guarded([&] {
    const auto code = c10_npu::SetDevice(bench::kDevice);
    if (code != ACL_ERROR_NONE) {
      throw std::runtime_error("SetDevice failed with code " + std::to_string(code));
    }
    bench::result = bench::Replay(events, count, stream_ids, streams, samples).run();
  });
  return done ? bench::result.c_str() : nullptr;
}

}  // extern "C"
#pragma GCC visibility pop
