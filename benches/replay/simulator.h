// The simulated device: its control functions, found at run time.
#pragma once

#include <array>
#include <cstdint>

namespace bench {

// Counts and virtual nanoseconds of a kind of driver call.
struct CallCount {
  std::uint64_t count = 0;
  std::uint64_t ns = 0;
  std::uint64_t wait_ns = 0;

  CallCount& operator+=(const CallCount& other);
  CallCount operator-(const CallCount& other) const;
};

// Kinds of driver calls that are told apart. The first nine obtain, return, map or unmap memory,
// the rest may wait for the device.
enum Call {
  kMalloc,
  kFree,
  kReserveAddress,
  kReleaseAddress,
  kMallocPhysical,
  kFreePhysical,
  kMap,
  kUnmap,
  kSetAccess,
  kSyncDevice,
  kSyncStream,
  kSyncEvent,
  kCalls,
};
constexpr int kMemoryCalls = kSyncDevice;
const char* name_of(Call call);

using CallCounts = std::array<CallCount, kCalls>;
CallCounts operator-(const CallCounts& left, const CallCounts& right);
CallCounts& operator+=(CallCounts& left, const CallCounts& right);

struct Memory {
  std::uint64_t used;
  std::uint64_t peak_used;
  // Memory calls so far.
  std::uint64_t calls;
};

// Device 0 of the simulator. Throws where the process does not run on one.
class Simulator {
 public:
  Simulator();
  void set_capacity(std::uint64_t bytes) const;
  void allow_aliases(bool allow) const;
  // Counts start at zero, the peak at what is in use.
  void reset() const;
  // A kernel on a stream that touches a range.
  void launch(void* stream, const void* addr, std::uint64_t bytes) const;
  Memory memory() const;
  CallCounts calls() const;
  std::uint64_t hazards() const;
  std::uint64_t now() const;
};

}  // namespace bench
