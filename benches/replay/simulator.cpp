#include "simulator.h"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

#include "cann_sim.h"

namespace bench {

namespace {

constexpr int kDevice = 0;

template <class Function>
Function* find(const char* name) {
  auto* found = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  if (found == nullptr) {
    throw std::runtime_error(std::string("this runtime has no ") + name +
                             ": traces are replayed on the simulated device only");
  }
  return found;
}

struct Functions {
  decltype(&cannSimSetCapacity) set_capacity =
      find<decltype(cannSimSetCapacity)>("cannSimSetCapacity");
  decltype(&cannSimSetAlias) set_alias = find<decltype(cannSimSetAlias)>("cannSimSetAlias");
  decltype(&cannSimResetStats) reset = find<decltype(cannSimResetStats)>("cannSimResetStats");
  decltype(&cannSimLaunch) launch = find<decltype(cannSimLaunch)>("cannSimLaunch");
  decltype(&cannSimGetMemory) get_memory = find<decltype(cannSimGetMemory)>("cannSimGetMemory");
  decltype(&cannSimGetCallStat) get_call = find<decltype(cannSimGetCallStat)>("cannSimGetCallStat");
  decltype(&cannSimGetStats) get_stats = find<decltype(cannSimGetStats)>("cannSimGetStats");
  decltype(&cannSimNow) now = find<decltype(cannSimNow)>("cannSimNow");
};

const Functions& functions() {
  static const Functions found;
  return found;
}

void check(int code, const char* what) {
  if (code != 0) {
    throw std::runtime_error(std::string("the simulator: ") + what + " failed with code " +
                             std::to_string(code));
  }
}

}  // namespace

CallCount& CallCount::operator+=(const CallCount& other) {
  count += other.count;
  ns += other.ns;
  wait_ns += other.wait_ns;
  return *this;
}

CallCount CallCount::operator-(const CallCount& other) const {
  return {count - other.count, ns - other.ns, wait_ns - other.wait_ns};
}

CallCounts operator-(const CallCounts& left, const CallCounts& right) {
  CallCounts result;
  for (int i = 0; i < kCalls; ++i) result[i] = left[i] - right[i];
  return result;
}

CallCounts& operator+=(CallCounts& left, const CallCounts& right) {
  for (int i = 0; i < kCalls; ++i) left[i] += right[i];
  return left;
}

const char* name_of(Call call) {
  static constexpr const char* kNames[kCalls] = {
      "aclrtMalloc",
      "aclrtFree",
      "aclrtReserveMemAddress",
      "aclrtReleaseMemAddress",
      "aclrtMallocPhysical",
      "aclrtFreePhysical",
      "aclrtMapMem",
      "aclrtUnmapMem",
      "aclrtMemSetAccess",
      "aclrtSynchronizeDevice",
      "aclrtSynchronizeStream",
      "aclrtSynchronizeEvent",
  };
  return kNames[call];
}

Simulator::Simulator() { functions(); }

void Simulator::set_capacity(std::uint64_t bytes) const {
  check(functions().set_capacity(kDevice, bytes), "setting the capacity");
}

void Simulator::allow_aliases(bool allow) const {
  check(functions().set_alias(allow), "choosing whether handles may be mapped twice");
}

void Simulator::reset() const { check(functions().reset(kDevice), "resetting counts"); }

void Simulator::launch(void* stream, const void* addr, std::uint64_t bytes) const {
  check(functions().launch(stream, reinterpret_cast<std::uint64_t>(addr), bytes), "a kernel");
}

Memory Simulator::memory() const {
  cannSimMemory memory{};
  check(functions().get_memory(kDevice, &memory), "asking for memory");
  return {memory.used, memory.peakUsed, memory.calls};
}

CallCounts Simulator::calls() const {
  CallCounts counts;
  for (int i = 0; i < kCalls; ++i) {
    cannSimCallStat stat{};
    check(functions().get_call(kDevice, name_of(static_cast<Call>(i)), &stat), "asking for calls");
    counts[i] = {stat.count, stat.ns, stat.waitNs};
  }
  return counts;
}

std::uint64_t Simulator::hazards() const {
  cannSimStats stats{};
  check(functions().get_stats(kDevice, &stats), "asking for hazards");
  return stats.hazards;
}

std::uint64_t Simulator::now() const { return functions().now(); }

}  // namespace bench
