// npualloc::c10_backend::DeviceAllocator with the libc10 of the installed torch.
#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>

#include "fake_device.h"
#include "npualloc/c10_allocator.h"

namespace {

using c10::CachingAllocator::StatType;
using npualloc::c10_backend::DeviceAllocator;
using npualloc_test::FakeDevice;
using npualloc_test::kMiB;

constexpr auto kAll = static_cast<std::size_t>(StatType::AGGREGATE);
constexpr auto kSmall = static_cast<std::size_t>(StatType::SMALL_POOL);
constexpr auto kLarge = static_cast<std::size_t>(StatType::LARGE_POOL);

class TestHooks : public npualloc::c10_backend::Hooks {
 public:
  c10::DeviceIndex current_device() override { return device; }
  std::uintptr_t current_stream(c10::DeviceIndex of) override { return streams[of]; }
  std::optional<std::uintptr_t> number(const c10::Stream& of) override {
    return static_cast<std::uintptr_t>(of.id());
  }
  void copy(void* dest, const void* src, std::size_t count) override {
    copies.push_back({dest, src, count});
  }

  struct Copy {
    void* dest;
    const void* src;
    std::size_t count;
  };
  c10::DeviceIndex device = 0;
  std::map<c10::DeviceIndex, std::uintptr_t> streams;
  std::vector<Copy> copies;
};

c10::Stream stream_of(c10::StreamId id, c10::DeviceType type = c10::DeviceType::PrivateUse1,
                      c10::DeviceIndex device = 0) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(type, device), id);
}

// The text without the stack that c10 appends.
template <typename Error>
std::string text_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what_without_backtrace();
  }
  return "nothing was thrown";
}

class C10Test : public testing::Test {
 protected:
  C10Test() : allocator(hooks, device.table()) { allocator.init(2); }

  FakeDevice device;
  TestHooks hooks;
  DeviceAllocator allocator;
};

TEST_F(C10Test, MakesDataPointersOfTheCurrentDevice) {
  hooks.device = 1;
  const c10::DataPtr ptr = allocator.allocate(1000);
  EXPECT_NE(ptr.get(), nullptr);
  EXPECT_EQ(ptr.get(), ptr.get_context());
  EXPECT_EQ(ptr.device(), c10::Device(c10::DeviceType::PrivateUse1, 1));
  EXPECT_EQ(ptr.get_deleter(), allocator.raw_deleter());
}

TEST_F(C10Test, ServesTheCurrentStreamOfTheDevice) {
  hooks.device = 1;
  hooks.streams = {{0, 8}, {1, 9}};
  const c10::DataPtr ptr = allocator.allocate(1000);
  EXPECT_EQ(allocator.core().describe(ptr.get()).stream, 9u);
}

TEST_F(C10Test, IsTheDeviceAllocatorOfItsType) {
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &allocator);
  EXPECT_EQ(c10::getDeviceAllocator(c10::DeviceType::PrivateUse1), &allocator);
}

TEST_F(C10Test, FreesThroughTheDeleter) {
  void* first = nullptr;
  {
    const c10::DataPtr ptr = allocator.allocate(1000);
    first = ptr.get();
    EXPECT_EQ(allocator.getDeviceStats(0).allocation[kAll].current, 1);
  }
  EXPECT_EQ(allocator.getDeviceStats(0).allocation[kAll].current, 0);
  EXPECT_EQ(allocator.allocate(1000).get(), first);
}

TEST_F(C10Test, GivesNullForNothing) {
  const c10::DataPtr ptr = allocator.allocate(0);
  EXPECT_EQ(ptr.get(), nullptr);
  EXPECT_EQ(device.mallocs, 0);
}

TEST_F(C10Test, IsInitializedByInit) {
  EXPECT_TRUE(allocator.initialized());
  EXPECT_THROW(allocator.getDeviceStats(2), c10::Error);
}

TEST_F(C10Test, FillsTorchsStatistics) {
  const c10::DataPtr small = allocator.allocate(1000);
  const c10::DataPtr large = allocator.allocate(2 * kMiB);
  const auto stats = allocator.getDeviceStats(0);
  EXPECT_EQ(stats.allocation[kAll].current, 2);
  EXPECT_EQ(stats.allocation[kSmall].current, 1);
  EXPECT_EQ(stats.allocation[kLarge].current, 1);
  EXPECT_EQ(stats.allocated_bytes[kSmall].current, 1024);
  EXPECT_EQ(stats.requested_bytes[kSmall].current, 1000);
  EXPECT_EQ(stats.reserved_bytes[kSmall].current, static_cast<int64_t>(2 * kMiB));
  EXPECT_EQ(stats.reserved_bytes[kLarge].current, static_cast<int64_t>(20 * kMiB));
  EXPECT_EQ(stats.segment[kAll].current, 2);
  EXPECT_EQ(stats.inactive_split[kAll].current, 2);
  EXPECT_EQ(stats.inactive_split_bytes[kLarge].current, static_cast<int64_t>(18 * kMiB));
  EXPECT_EQ(stats.num_device_alloc, 2);
  EXPECT_EQ(stats.max_split_size, -1);
}

TEST_F(C10Test, ResetsPeaksAndSums) {
  allocator.allocate(2 * kMiB);
  EXPECT_EQ(allocator.getDeviceStats(0).allocated_bytes[kAll].peak, static_cast<int64_t>(2 * kMiB));
  allocator.resetPeakStats(0);
  EXPECT_EQ(allocator.getDeviceStats(0).allocated_bytes[kAll].peak, 0);
  EXPECT_EQ(allocator.getDeviceStats(0).allocation[kAll].allocated, 1);
  allocator.resetAccumulatedStats(0);
  EXPECT_EQ(allocator.getDeviceStats(0).allocation[kAll].allocated, 0);
}

TEST_F(C10Test, HoldsMemoryForRecordedStreams) {
  void* first = nullptr;
  {
    const c10::DataPtr ptr = allocator.allocate(1000);
    first = ptr.get();
    allocator.recordStream(ptr, stream_of(9));
  }
  ASSERT_EQ(device.recorded.size(), 1u);
  EXPECT_EQ(device.recorded[0].id, 9);
  EXPECT_EQ(allocator.getDeviceStats(0).active[kAll].current, 1);
  {
    const c10::DataPtr other = allocator.allocate(1000);
    EXPECT_NE(other.get(), first);
  }
  device.complete_all();
  EXPECT_EQ(allocator.allocate(1000).get(), first);
}

TEST_F(C10Test, NeedsNoEventForAUseOnTheOwnStream) {
  hooks.streams[0] = 9;
  void* first = nullptr;
  {
    const c10::DataPtr ptr = allocator.allocate(1000);
    first = ptr.get();
    allocator.recordStream(ptr, stream_of(9));
  }
  EXPECT_TRUE(device.recorded.empty());
  EXPECT_EQ(allocator.allocate(1000).get(), first);
  {
    const c10::DataPtr ptr = allocator.allocate(1000);
    allocator.recordStream(ptr, stream_of(8));
  }
  EXPECT_EQ(device.recorded.size(), 1u) << "another stream of the device";
  {
    const c10::DataPtr ptr = allocator.allocate(1000);
    allocator.recordStream(ptr, stream_of(9, c10::DeviceType::PrivateUse1, 1));
  }
  ASSERT_EQ(device.recorded.size(), 2u) << "the stream of that number, but of another device";
  EXPECT_EQ(device.recorded[1].device, 1);
}

TEST_F(C10Test, IgnoresMemoryOfOthersInRecordStream) {
  int local = 0;
  const c10::DataPtr foreign(&local, c10::Device(c10::DeviceType::PrivateUse1, 0));
  EXPECT_NO_THROW(allocator.recordStream(foreign, stream_of(9)));
  EXPECT_NO_THROW(allocator.recordStream(allocator.allocate(0), stream_of(9)));
}

TEST_F(C10Test, RefusesStreamsOfOtherDeviceTypes) {
  const c10::DataPtr ptr = allocator.allocate(1000);
  EXPECT_NE(text_of<c10::Error>([&] {
              allocator.recordStream(ptr, stream_of(9, c10::DeviceType::CUDA));
            }).find("Expected a PrivateUse1 stream"),
            std::string::npos);
}

TEST_F(C10Test, ThrowsTorchsOutOfMemoryError) {
  EXPECT_EQ(text_of<c10::OutOfMemoryError>([&] {
              allocator.allocate(100 * kMiB);
            }).rfind("NPU out of memory. Tried to allocate 100.00 MiB (NPU 0; 64.00 MiB total", 0),
            0u);
  EXPECT_EQ(allocator.getDeviceStats(0).num_ooms, 1);
  EXPECT_EQ(text_of<c10::OutOfMemoryError>([&] { allocator.allocate(std::size_t{1} << 60); }),
            "NPU out of memory. Tried to allocate more than 1EB memory.");
}

TEST_F(C10Test, ThrowsErrorsOfTheDriver) {
  device.malloc_code = 507899;
  const std::string text = text_of<c10::Error>([&] { allocator.allocate(1000); });
  EXPECT_EQ(text.rfind("NPU function error: ", 0), 0u) << text;
  EXPECT_NE(text.find("507899"), std::string::npos) << text;
}

TEST_F(C10Test, RefusesDevicesWithoutInit) {
  hooks.device = 5;
  EXPECT_NE(text_of<c10::Error>([&] { allocator.allocate(1000); }).find("did you call init?"),
            std::string::npos);
}

TEST_F(C10Test, EmptiesTheCacheOfDevicesInUse) {
  hooks.device = 1;
  allocator.allocate(1000);
  EXPECT_EQ(device.used, 2 * kMiB);
  allocator.emptyCache();
  EXPECT_EQ(device.used, 0u);
  EXPECT_EQ(device.synchronizations, 1) << "device 0 was never used";
}

using ReservedByPools = std::map<c10::MempoolId_t, std::int64_t>;

// Nothing where this torch does not tell.
template <typename Stats>
std::optional<ReservedByPools> reserved_by_pools(const Stats& stats) {
  if constexpr (requires { stats.reserved_bytes_by_private_pools; }) {
    ReservedByPools reserved;
    for (const auto& [pool, bytes] : stats.reserved_bytes_by_private_pools) {
      reserved[pool] = bytes[kAll].current;
    }
    return reserved;
  } else {
    return std::nullopt;
  }
}

TEST_F(C10Test, EmptiesOnePoolOnly) {
  const npualloc::ffi::Allocator& core = allocator.core().core();
  allocator.allocate(1000);
  for (const auto& id : {c10::MempoolId_t{1, 0}, c10::MempoolId_t{0, 5}}) {
    const npualloc::ffi::MempoolId pool{id.first, id.second};
    EXPECT_EQ(core.create_or_incref_pool(0, pool, false).status, npualloc::ffi::Status::Ok);
    const auto made = core.allocate_in(0, 1000, 0, pool, 0);
    EXPECT_TRUE(core.deallocate(made.addr));
    EXPECT_EQ(device.used, 4 * kMiB);
    const ReservedByPools one = {{id, static_cast<std::int64_t>(2 * kMiB)}};
    EXPECT_EQ(reserved_by_pools(allocator.getDeviceStats(0)).value_or(one), one);
    allocator.emptyCache(id);
    EXPECT_EQ(device.used, 4 * kMiB) << "the pool is in use";
    EXPECT_EQ(core.release_pool(0, pool).status, npualloc::ffi::Status::Ok);
    allocator.emptyCache(id);
    EXPECT_EQ(device.used, 2 * kMiB) << "the default pool keeps its memory";
  }
}

TEST_F(C10Test, TellsTheDevicesMemory) {
  const c10::DataPtr ptr = allocator.allocate(1000);
  device.used_by_others[1] = 10 * kMiB;
  EXPECT_EQ(allocator.getMemoryInfo(0), std::make_pair(62 * kMiB, 64 * kMiB));
  EXPECT_EQ(allocator.getMemoryInfo(1), std::make_pair(52 * kMiB, 64 * kMiB));
  EXPECT_THROW(allocator.getMemoryInfo(2), c10::Error);
}

// What the profiler of torch is told.
class Reports : public c10::MemoryReportingInfoBase {
 public:
  struct Report {
    void* ptr;
    std::int64_t bytes;
    std::size_t allocated;
    std::size_t reserved;
    c10::Device device;
    bool operator==(const Report&) const = default;
  };
  bool memoryProfilingEnabled() const override { return true; }
  void reportMemoryUsage(void* ptr, std::int64_t bytes, std::size_t allocated, std::size_t reserved,
                         c10::Device device) override {
    usage.push_back({ptr, bytes, allocated, reserved, device});
  }
  void reportOutOfMemory(std::int64_t bytes, std::size_t allocated, std::size_t reserved,
                         c10::Device device) override {
    refused.push_back({nullptr, bytes, allocated, reserved, device});
  }
  std::vector<Report> usage;
  std::vector<Report> refused;
};

TEST_F(C10Test, TellsTorchsProfiler) {
  const c10::Device second(c10::DeviceType::PrivateUse1, 1);
  const auto reports = std::make_shared<Reports>();
  void* ptr = nullptr;
  hooks.device = 1;
  const c10::DataPtr before = allocator.allocate(3 * kMiB);
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, reports);
    ptr = allocator.allocate(1000).get();
    EXPECT_EQ(
        text_of<c10::OutOfMemoryError>([&] { allocator.allocate(100 * kMiB); }).rfind("NPU out", 0),
        0u);
    allocator.allocate(0);
  }
  allocator.allocate(1000);
  const std::size_t held = 3 * kMiB;
  const std::vector<Reports::Report> usage = {{ptr, 1024, held + 1024, 22 * kMiB, second},
                                              {ptr, -1024, held, 22 * kMiB, second}};
  EXPECT_EQ(reports->usage, usage);
  const std::vector<Reports::Report> refused = {
      {nullptr, static_cast<std::int64_t>(100 * kMiB), held, 20 * kMiB, second}};
  EXPECT_EQ(reports->refused, refused);
}

TEST_F(C10Test, TellsTorchsProfilerOfRequestsRefusedByPolicy) {
  allocator.core().apply_settings("throw_on_npumalloc_oom:True,per_process_memory_fraction:0.5");
  const auto reports = std::make_shared<Reports>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, reports);
  EXPECT_THROW(allocator.allocate(40 * kMiB), c10::OutOfMemoryError);
  const c10::Device first(c10::DeviceType::PrivateUse1, 0);
  const std::vector<Reports::Report> refused = {
      {nullptr, static_cast<std::int64_t>(40 * kMiB), 0, 0, first}};
  EXPECT_EQ(reports->refused, refused);
}

TEST_F(C10Test, ClonesThroughTheHooks) {
  const c10::DataPtr ptr = allocator.allocate(1000);
  const c10::DataPtr clone = allocator.clone(ptr.get(), 1000);
  ASSERT_EQ(hooks.copies.size(), 1u);
  EXPECT_EQ(hooks.copies[0].dest, clone.get());
  EXPECT_EQ(hooks.copies[0].src, ptr.get());
  EXPECT_EQ(hooks.copies[0].count, 1000u);
}

TEST_F(C10Test, ExistsOnce) {
  EXPECT_NE(
      text_of<c10::Error>([&] { DeviceAllocator(hooks, device.table()); }).find("exists already"),
      std::string::npos);
}

TEST(C10LifeTest, CanBeMadeAgainWhenItIsGone) {
  FakeDevice device;
  TestHooks hooks;
  for (int round = 0; round < 2; ++round) {
    DeviceAllocator allocator(hooks, device.table());
    EXPECT_FALSE(allocator.initialized());
    allocator.init(1);
    EXPECT_NE(allocator.allocate(1000).get(), nullptr);
    EXPECT_TRUE(allocator.initialized());
  }
}

TEST(C10ConfigTest, RefusesWithTheStockClasses) {
  FakeDevice device;
  TestHooks hooks;
  const auto make = [&](const char* config) {
    DeviceAllocator(hooks, device.table(), {.config = config, .pad_bytes = 0});
  };
  EXPECT_THROW(make("max_split_size_mb:1"), c10::ValueError);
  EXPECT_THROW(make("max_split_size_mb:x"), std::invalid_argument);
  EXPECT_THROW(make("max_split_size_mb:99999999999999999999999"), std::out_of_range);
  EXPECT_THROW(make("max_split_size_mb"), c10::Error);
}

TEST(C10ConfigTest, RefusesABadConfig) {
  FakeDevice device;
  TestHooks hooks;
  EXPECT_THROW(DeviceAllocator(hooks, device.table(), {.config = "no_such_key:1", .pad_bytes = 0}),
               c10::Error);
  // And can be made afterwards.
  EXPECT_NO_THROW(DeviceAllocator(hooks, device.table()));
}

}  // namespace
