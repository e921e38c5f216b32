// npualloc::Allocator over a device of the test's own.
#include "npualloc/allocator.h"

#include <gtest/gtest.h>

#include "fake_device.h"

namespace {

using npualloc::Allocator;
using npualloc::DeviceStats;
using npualloc::StreamToken;
using npualloc_test::FakeDevice;
using npualloc_test::kMiB;

std::uintptr_t address(void* ptr) { return reinterpret_cast<std::uintptr_t>(ptr); }

class AllocatorTest : public testing::Test {
 protected:
  AllocatorTest() : allocator(device.table()) { allocator.init(2); }
  ~AllocatorTest() override { EXPECT_NO_THROW(allocator.check_consistency()); }

  FakeDevice device;
  Allocator allocator;
};

TEST_F(AllocatorTest, ServesSmallRequestsFromOneSegmentOfTwoMiB) {
  void* first = allocator.allocate(0, 1000);
  void* second = allocator.allocate(0, 1000);
  EXPECT_EQ(device.mallocs, 1);
  EXPECT_EQ(device.used, 2 * kMiB);
  // Sizes are rounded to 512 bytes, and blocks are handed out from the front.
  EXPECT_EQ(address(second) - address(first), 1024u);
  allocator.deallocate(first);
  allocator.deallocate(second);
}

TEST_F(AllocatorTest, WorksAtAnyAddress) {
  device.next = 0x100000000000 + 256 + 16;
  std::vector<void*> held;
  for (std::size_t size = 1; size < 4 * kMiB; size = size * 3 / 2 + 100) {
    void* ptr = allocator.allocate(0, size);
    EXPECT_EQ(allocator.describe(ptr).addr, address(ptr));
    held.push_back(ptr);
  }
  EXPECT_NO_THROW(allocator.check_consistency());
  for (std::size_t at = 0; at < held.size(); at += 2) allocator.deallocate(held[at]);
  EXPECT_NO_THROW(allocator.check_consistency());
  for (std::size_t at = 1; at < held.size(); at += 2) allocator.deallocate(held[at]);
  allocator.empty_cache(0);
  EXPECT_EQ(device.used, 0u);
}

TEST_F(AllocatorTest, PicksSegmentsBySize) {
  void* medium = allocator.allocate(0, 2 * kMiB);
  EXPECT_EQ(device.used, 20 * kMiB);
  // More than the 18 MiB left there, so a segment of its own, in units of 2 MiB.
  void* large = allocator.allocate(0, 19 * kMiB);
  EXPECT_EQ(device.used, 20 * kMiB + 20 * kMiB);
  allocator.deallocate(medium);
  allocator.deallocate(large);
}

TEST_F(AllocatorTest, ReusesWhatWasFreed) {
  void* first = allocator.allocate(0, 5000);
  allocator.deallocate(first);
  EXPECT_EQ(allocator.allocate(0, 5000), first);
  EXPECT_EQ(device.mallocs, 1);
}

TEST_F(AllocatorTest, MergesFreedNeighbours) {
  void* a = allocator.allocate(0, 700 * 1024);
  void* b = allocator.allocate(0, 700 * 1024);
  allocator.deallocate(a);
  allocator.deallocate(b);
  const npualloc::CacheInfo info = allocator.cache_info(0);
  EXPECT_EQ(info.total, 2 * kMiB);
  EXPECT_EQ(info.largest, 2 * kMiB);
  EXPECT_EQ(allocator.stats(0).inactive_split.aggregate.current, 0);
}

TEST_F(AllocatorTest, KeepsStreamsApart) {
  void* on_default = allocator.allocate(0, 1000, 0);
  allocator.deallocate(on_default);
  EXPECT_NE(allocator.allocate(0, 1000, 7), on_default);
  EXPECT_EQ(device.mallocs, 2);
  EXPECT_EQ(allocator.allocate(0, 1000, 0), on_default);
}

TEST_F(AllocatorTest, KeepsDevicesApart) {
  void* zero = allocator.allocate(0, 1000);
  void* one = allocator.allocate(1, 1000);
  EXPECT_EQ(allocator.describe(zero).device, 0);
  EXPECT_EQ(allocator.describe(one).device, 1);
  EXPECT_EQ(allocator.stats(1).allocation.aggregate.current, 1);
}

TEST_F(AllocatorTest, PadsRequestsWhenAsked) {
  Allocator padded(device.table(), {.config = "", .pad_bytes = 32});
  padded.init(1);
  void* ptr = padded.allocate(0, 512);
  EXPECT_EQ(padded.describe(ptr).size, 1024u);
  EXPECT_EQ(padded.describe(ptr).requested_size, 512u);
}

TEST_F(AllocatorTest, CountsWhatHappens) {
  void* small = allocator.allocate(0, 1000);
  void* large = allocator.allocate(0, 2 * kMiB);
  DeviceStats stats = allocator.stats(0);
  EXPECT_EQ(stats.allocation.aggregate.current, 2);
  EXPECT_EQ(stats.allocation.small_pool.current, 1);
  EXPECT_EQ(stats.allocation.large_pool.current, 1);
  EXPECT_EQ(stats.allocated_bytes.aggregate.current, static_cast<int64_t>(2 * kMiB + 1024));
  EXPECT_EQ(stats.requested_bytes.aggregate.current, static_cast<int64_t>(2 * kMiB + 1000));
  EXPECT_EQ(stats.reserved_bytes.aggregate.current, static_cast<int64_t>(22 * kMiB));
  EXPECT_EQ(stats.segment.aggregate.current, 2);
  EXPECT_EQ(stats.num_device_alloc, 2);

  allocator.deallocate(small);
  allocator.deallocate(large);
  stats = allocator.stats(0);
  EXPECT_EQ(stats.allocated_bytes.aggregate.current, 0);
  EXPECT_EQ(stats.allocated_bytes.aggregate.peak, static_cast<int64_t>(2 * kMiB + 1024));
  EXPECT_EQ(stats.allocation.aggregate.freed, 2);

  allocator.reset_peak_stats(0);
  allocator.reset_accumulated_stats(0);
  stats = allocator.stats(0);
  EXPECT_EQ(stats.allocated_bytes.aggregate.peak, 0);
  EXPECT_EQ(stats.allocation.aggregate.freed, 0);
  EXPECT_EQ(stats.num_device_alloc, 0);
  EXPECT_EQ(stats.reserved_bytes.aggregate.current, static_cast<int64_t>(22 * kMiB));
}

TEST_F(AllocatorTest, ResetsTheCountersOfOneDevice) {
  for (const int of : {0, 1}) allocator.deallocate(allocator.allocate(of, 1000));
  allocator.reset_peak_stats(1);
  allocator.reset_accumulated_stats(1);
  EXPECT_EQ(allocator.stats(1).allocated_bytes.aggregate.peak, 0);
  EXPECT_EQ(allocator.stats(1).allocation.aggregate.freed, 0);
  EXPECT_EQ(allocator.stats(0).allocated_bytes.aggregate.peak, 1024);
  EXPECT_EQ(allocator.stats(0).allocation.aggregate.freed, 1);
}

TEST_F(AllocatorTest, HoldsABlockUntilOtherStreamsAreDone) {
  void* ptr = allocator.allocate(0, 1000);
  allocator.record_stream(ptr, {42, 0, 0});
  allocator.deallocate(ptr);
  ASSERT_EQ(device.recorded.size(), 1u);
  EXPECT_EQ(device.recorded[0].id, 42);
  EXPECT_EQ(allocator.stats(0).active.aggregate.current, 1);
  EXPECT_EQ(allocator.stats(0).allocation.aggregate.current, 0);
  EXPECT_NE(allocator.allocate(0, 1000), ptr) << "its use on stream 42 is not over";

  device.complete_all();
  EXPECT_EQ(allocator.allocate(0, 1000), ptr);
}

TEST_F(AllocatorTest, ForgetsAUseThatWasErased) {
  void* ptr = allocator.allocate(0, 1000);
  allocator.record_stream(ptr, {42, 0, 0});
  allocator.erase_stream(ptr, {42, 0, 0});
  allocator.deallocate(ptr);
  EXPECT_TRUE(device.recorded.empty());
  EXPECT_EQ(allocator.allocate(0, 1000), ptr);
}

TEST_F(AllocatorTest, SaysWhenMemoryRunsOut) {
  void* held = allocator.allocate(0, 30 * kMiB);
  try {
    allocator.allocate(0, 40 * kMiB);
    FAIL() << "40 MiB more do not fit into 64";
  } catch (const npualloc::OutOfMemory& error) {
    EXPECT_EQ(error.status(), npualloc::Status::OutOfMemory);
    EXPECT_EQ(error.report().alloc_size, 40 * kMiB);
    EXPECT_EQ(error.report().device_total, 64 * kMiB);
    EXPECT_EQ(error.report().device_free, 34 * kMiB);
    EXPECT_EQ(error.report().allocated, 30 * kMiB);
    EXPECT_EQ(std::string(error.what())
                  .rfind("NPU out of memory. Tried to allocate 40.00 MiB (NPU 0;", 0),
              0u)
        << error.what();
  }
  EXPECT_EQ(allocator.stats(0).num_ooms, 1);
  // The failure changed nothing.
  allocator.deallocate(held);
  EXPECT_EQ(allocator.allocate(0, 30 * kMiB), held);
}

TEST_F(AllocatorTest, GivesCachedMemoryBackBeforeItFails) {
  allocator.deallocate(allocator.allocate(0, 40 * kMiB));
  EXPECT_EQ(device.used, 40 * kMiB);
  void* ptr = allocator.allocate(0, 50 * kMiB);
  EXPECT_EQ(device.used, 50 * kMiB);
  EXPECT_EQ(allocator.stats(0).num_alloc_retries, 1);
  EXPECT_EQ(allocator.stats(0).num_ooms, 0);
  allocator.deallocate(ptr);
}

TEST_F(AllocatorTest, ReportsOtherDriverFailuresWithTheirCode) {
  device.malloc_code = 507899;
  try {
    allocator.allocate(0, 1000);
    FAIL() << "the driver failed";
  } catch (const npualloc::DriverFailure& error) {
    EXPECT_EQ(error.code(), 507899);
    EXPECT_NE(std::string(error.what()).find("507899"), std::string::npos) << error.what();
  }
}

TEST_F(AllocatorTest, RefusesForeignPointers) {
  void* ptr = allocator.allocate(0, 1000);
  int local = 0;
  try {
    allocator.deallocate(&local);
    FAIL() << "not a block";
  } catch (const npualloc::InvalidPointer& error) {
    EXPECT_EQ(std::string(error.what()).rfind("invalid device pointer: 0x", 0), 0u) << error.what();
  }
  EXPECT_THROW(allocator.deallocate(static_cast<char*>(ptr) + 512), npualloc::InvalidPointer);
  EXPECT_THROW(allocator.describe(&local), npualloc::InvalidPointer);
  EXPECT_THROW(allocator.record_stream(&local, {1, 0, 0}), npualloc::InvalidPointer);
  EXPECT_THROW(allocator.erase_stream(&local, {1, 0, 0}), npualloc::InvalidPointer);
  allocator.deallocate(ptr);
  EXPECT_THROW(allocator.deallocate(ptr), npualloc::InvalidPointer) << "freed twice";
}

TEST_F(AllocatorTest, RefusesUnknownDevices) {
  EXPECT_THROW(allocator.allocate(2, 1000), npualloc::InvalidDevice);
  EXPECT_THROW(allocator.allocate(-1, 1000), npualloc::InvalidDevice);
  EXPECT_THROW(allocator.stats(2), npualloc::InvalidDevice);
  EXPECT_THROW(allocator.empty_cache(2), npualloc::InvalidDevice);
  EXPECT_THROW(allocator.cache_info(2), npualloc::InvalidDevice);
  allocator.init(3);
  EXPECT_EQ(allocator.device_count(), 3);
  EXPECT_NO_THROW(allocator.stats(2));
  allocator.init(1);
  EXPECT_EQ(allocator.device_count(), 3) << "never shrinks";
}

TEST_F(AllocatorTest, IgnoresNothing) {
  EXPECT_EQ(allocator.allocate(0, 0), nullptr);
  // Also where the thread's last call failed.
  EXPECT_NE(allocator.try_allocate(0, std::size_t{1} << 50, 0).status, npualloc::Status::Ok);
  EXPECT_EQ(allocator.try_allocate(0, 0, 0).status, npualloc::Status::Ok);
  allocator.deallocate(nullptr);
  EXPECT_EQ(device.mallocs, 0);
}

TEST_F(AllocatorTest, LimitsReservedMemory) {
  EXPECT_DOUBLE_EQ(allocator.memory_fraction(1), 1.0);
  allocator.set_memory_fraction(1, 0.5);
  EXPECT_DOUBLE_EQ(allocator.memory_fraction(1), 0.5);
  EXPECT_THROW(allocator.allocate(1, 40 * kMiB), npualloc::OutOfMemory);
  EXPECT_NO_THROW(allocator.allocate(1, 20 * kMiB));
  EXPECT_NO_THROW(allocator.allocate(0, 40 * kMiB)) << "the other device has no limit";
}

TEST_F(AllocatorTest, SaysWhenARequestIsRefusedByPolicy) {
  allocator.apply_settings("throw_on_npumalloc_oom:True,per_process_memory_fraction:0.5");
  try {
    allocator.allocate(0, 40 * kMiB);
    FAIL() << "more than half of 64 MiB";
  } catch (const npualloc::OutOfMemory& error) {
    EXPECT_EQ(error.status(), npualloc::Status::Rejected) << error.what();
  }
}

TEST_F(AllocatorTest, RefusesWrongFractions) {
  allocator.set_memory_fraction(0, 0.25);
  for (const double wrong : {-0.1, 1.5}) {
    EXPECT_THROW(allocator.set_memory_fraction(0, wrong), npualloc::InvalidArgument) << wrong;
  }
  EXPECT_DOUBLE_EQ(allocator.memory_fraction(0), 0.25);
}

TEST_F(AllocatorTest, EmptiesItsCache) {
  void* kept = allocator.allocate(0, 1000);
  allocator.deallocate(allocator.allocate(0, 15 * kMiB));
  EXPECT_EQ(device.used, 2 * kMiB + 16 * kMiB);
  allocator.empty_cache(0);
  EXPECT_EQ(device.used, 2 * kMiB) << "the segment in use stays";
  EXPECT_EQ(device.synchronizations, 1);
  EXPECT_EQ(allocator.stats(0).num_device_free, 1);
  allocator.deallocate(kept);
  allocator.empty_cache(0);
  EXPECT_EQ(device.used, 0u);
}

TEST_F(AllocatorTest, TellsTheSegmentOfABlock) {
  void* first = allocator.allocate(0, 1000);
  void* second = allocator.allocate(0, 1000);
  std::size_t bytes = 0;
  EXPECT_EQ(allocator.base_allocation(second, &bytes), first);
  EXPECT_EQ(bytes, 2 * kMiB);
  EXPECT_EQ(allocator.base_allocation(second, nullptr), first);
}

TEST(AllocatorConfigTest, RefusesABadConfig) {
  FakeDevice device;
  EXPECT_THROW(Allocator(device.table(), {.config = "no_such_key:1", .pad_bytes = 0}),
               npualloc::InvalidArgument);
  EXPECT_THROW(Allocator(device.table(), {.config = "max_split_size_mb:1", .pad_bytes = 0}),
               npualloc::InvalidArgument);
}

// Kind and code of what a configuration string is refused with.
std::pair<npualloc::Status, int> refusal(const std::string& config) {
  FakeDevice device;
  try {
    Allocator(device.table(), {.config = config, .pad_bytes = 0});
  } catch (const npualloc::InvalidArgument& error) {
    return {error.status(), error.code()};
  }
  return {npualloc::Status::Ok, 0};
}

TEST(AllocatorConfigTest, TellsTheStockExceptionsApart) {
  using npualloc::Status;
  using Refusal = std::pair<Status, int>;
  EXPECT_EQ(refusal("no_such_key:1"), Refusal(Status::ConfigValue, 1003));
  EXPECT_EQ(refusal("max_split_size_mb:1"), Refusal(Status::ConfigValue, -1));
  EXPECT_EQ(refusal("max_split_size_mb:x"), Refusal(Status::ConfigNotANumber, -1));
  EXPECT_EQ(refusal("max_split_size_mb:99999999999999999999999"),
            Refusal(Status::ConfigOutOfRange, -1));
  EXPECT_EQ(refusal("max_split_size_mb"), Refusal(Status::ConfigRuntime, -1));
  EXPECT_EQ(refusal("per_process_memory_fraction:2"), Refusal(Status::ConfigRuntime, 3));
  EXPECT_EQ(refusal("expandable_segments:True,max_split_size_mb:30"),
            Refusal(Status::ConfigRuntime, 1001));
}

TEST(AllocatorConfigTest, TakesSettingsAtRunTime) {
  FakeDevice device;
  Allocator allocator(device.table());
  allocator.init(1);
  EXPECT_EQ(allocator.stats(0).max_split_size, -1);
  allocator.apply_settings("max_split_size_mb:40");
  EXPECT_EQ(allocator.stats(0).max_split_size, static_cast<int64_t>(40 * kMiB));
  EXPECT_THROW(allocator.apply_settings("max_split_size_mb:nonsense"), npualloc::InvalidArgument);
  EXPECT_EQ(allocator.stats(0).max_split_size, static_cast<int64_t>(40 * kMiB));
}

TEST(AllocatorExitTest, MakesNoDriverCallAfterTheEnd) {
  FakeDevice device;
  Allocator allocator(device.table());
  allocator.init(1);
  void* ptr = allocator.allocate(0, 1000);
  allocator.record_stream(ptr, {42, 0, 0});
  allocator.begin_process_exit();
  allocator.deallocate(ptr);
  EXPECT_TRUE(device.recorded.empty());
  EXPECT_EQ(device.frees, 0);
}

}  // namespace
