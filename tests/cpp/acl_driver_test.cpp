// The AscendCL driver table on the device runtime of this machine, the simulated one included.
#include "npualloc/acl_driver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "cann_sim.h"
#include "npualloc/allocator.h"

namespace {

using npualloc::AclDriver;
using npualloc::Allocator;

constexpr std::size_t kMiB = std::size_t{1} << 20;

template <typename Function>
Function find(const char* name) {
  static void* runtime = dlopen("libascendcl.so", RTLD_NOW);
  return reinterpret_cast<Function>(runtime == nullptr ? nullptr : dlsym(runtime, name));
}

TEST(AclDriverErrorTest, NamesTheLibraryThatIsMissing) {
  try {
    AclDriver driver("libno_such_runtime.so");
    FAIL() << "there is no such library";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("libno_such_runtime.so"), std::string::npos)
        << error.what();
  }
}

TEST(AclDriverErrorTest, NamesTheFunctionThatIsMissing) {
  try {
    AclDriver driver("libm.so.6");
    FAIL() << "the mathematics library is no device runtime";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("aclrtSetDevice"), std::string::npos) << error.what();
  }
}

TEST(AclDriverOldTest, TakesARuntimeThatLacksNewerFunctions) {
  const AclDriver driver(OLD_RUNTIME);
  EXPECT_EQ(driver.table().reserve_address, nullptr);
  EXPECT_EQ(driver.table().stream_wait, nullptr);
  Allocator allocator(driver.table());
  allocator.init(driver.device_count());
  void* ptr = allocator.allocate(0, 1000);
  EXPECT_NE(ptr, nullptr);
  allocator.deallocate(ptr);
  allocator.empty_cache(0);
}

class AclDriverTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (const auto init = find<int (*)(const char*)>("aclInit")) init(nullptr);
  }

  // The code that the runtime keeps for the calling thread.
  static int last_error() { return find<int (*)(int)>("aclrtPeekAtLastError")(0); }

  // Makes calls fail as CANN_SIM_FAULTS does; an empty plan ends that.
  static void plan_faults(const char* plan) {
    const auto set_faults = find<decltype(&cannSimSetFaults)>("cannSimSetFaults");
    if (set_faults == nullptr) GTEST_SKIP() << "only the simulated runtime fails when asked to";
    ASSERT_EQ(set_faults(plan), 0);
  }

  void SetUp() override {
    if (dlopen("libascendcl.so", RTLD_NOW) == nullptr) {
      GTEST_SKIP() << "no device runtime: " << dlerror();
    }
    driver = std::make_unique<AclDriver>();
    if (driver->device_count() == 0) GTEST_SKIP() << "the device runtime has no device";
    ASSERT_EQ(find<int (*)(int)>("aclrtSetDevice")(0), 0);
    // Never destroyed: the table must outlive it, and the process ends with the test program.
    allocator = std::make_unique<Allocator>(driver->table());
    allocator->init(driver->device_count());
    if (const auto reset = find<decltype(&cannSimResetStats)>("cannSimResetStats")) {
      for (int device = 0; device < driver->device_count(); ++device) reset(device);
    }
  }

  // The simulated runtime says what a real device would punish; a real one says nothing.
  void TearDown() override {
    if (allocator == nullptr) return;
    const auto stats_of = find<decltype(&cannSimGetStats)>("cannSimGetStats");
    for (int device = 0; stats_of != nullptr && device < driver->device_count(); ++device) {
      const auto reserved = allocator->stats(device).reserved_bytes.aggregate.current;
      cannSimStats stats{};
      ASSERT_EQ(stats_of(device, &stats), 0);
      EXPECT_EQ(stats.unfreedPlain + stats.unfreedPhysical, static_cast<std::uint64_t>(reserved))
          << "device " << device << " holds something else than the allocator knows of";
      allocator->empty_cache(device);
      ASSERT_EQ(stats_of(device, &stats), 0);
      EXPECT_EQ(stats.hazards, 0u) << "on device " << device;
      EXPECT_EQ(stats.unfreedPlain + stats.unfreedPhysical, 0u) << "left on device " << device;
    }
  }

  std::unique_ptr<AclDriver> driver;
  std::unique_ptr<Allocator> allocator;
};

TEST_F(AclDriverTest, AllocatesAndReturnsDeviceMemory) {
  void* ptr = allocator->allocate(0, 30 * kMiB);
  ASSERT_NE(ptr, nullptr);
  EXPECT_EQ(allocator->stats(0).reserved_bytes.aggregate.current, static_cast<int64_t>(30 * kMiB));
  allocator->deallocate(ptr);
  allocator->empty_cache(0);
  EXPECT_EQ(allocator->stats(0).reserved_bytes.aggregate.current, 0);
  allocator->check_consistency();
}

TEST_F(AclDriverTest, FailsWithTheCapacityOfTheDevice) {
  void* held = allocator->allocate(0, 30 * kMiB);
  std::size_t free = 0;
  std::size_t total = 0;
  const npualloc::DriverTable table = driver->table();
  ASSERT_EQ(table.memory_info(table.user, 0, &free, &total), 0);
  ASSERT_GT(total, 0u);
  EXPECT_LE(free, total - 30 * kMiB);
  try {
    allocator->allocate(0, 2 * total);
    FAIL() << "twice the device does not fit into it";
  } catch (const npualloc::OutOfMemory& error) {
    EXPECT_EQ(error.report().device_total, total);
    EXPECT_EQ(error.code(), 207001);
  }
  EXPECT_EQ(last_error(), 0) << "the caller deals with it";
  allocator->deallocate(held);
}

TEST_F(AclDriverTest, LeavesAnOlderErrorOfTheThreadAlone) {
  const npualloc::DriverTable table = driver->table();
  std::size_t free = 0;
  std::size_t total = 0;
  ASSERT_EQ(table.memory_info(table.user, 0, &free, &total), 0);
  void* ptr = nullptr;
  ASSERT_EQ(find<int (*)(void**, std::size_t, int)>("aclrtMalloc")(&ptr, 2 * total, 0), 207001);
  ASSERT_EQ(last_error(), 207001);
  EXPECT_THROW(allocator->allocate(0, 2 * total), npualloc::OutOfMemory);
  EXPECT_EQ(last_error(), 207001) << "the program's own call failed with it";
}

TEST_F(AclDriverTest, LeavesNoErrorInAThreadWithoutAContext) {
  std::thread([&] {
    allocator->deallocate(allocator->allocate(0, 1000));
    EXPECT_EQ(last_error(), 0);
  }).join();
}

TEST_F(AclDriverTest, TakesNothingFromTheCurrentDeviceForOneThatIsNotThere) {
  const int none = driver->device_count();
  allocator->init(none + 1);
  EXPECT_THROW(allocator->allocate(none, 1000), npualloc::DriverFailure);
}

TEST_F(AclDriverTest, KeepsMemoryThatTheDriverDoesNotTakeBack) {
  allocator->deallocate(allocator->allocate(0, 30 * kMiB));
  plan_faults("aclrtFree:every=1,code=507899");
  if (IsSkipped()) return;
  EXPECT_THROW(allocator->empty_cache(0), npualloc::DriverFailure);
  plan_faults("");
  EXPECT_EQ(allocator->stats(0).reserved_bytes.aggregate.current, static_cast<int64_t>(30 * kMiB));
}

TEST_F(AclDriverTest, DoesNotTakeAFailureForNoDevices) {
  plan_faults("other:every=1,code=507899");
  if (IsSkipped()) return;
  EXPECT_THROW((void)driver->device_count(), std::runtime_error);
  plan_faults("");
}

// With two streams, and work of an hour for them: far more than the calls take.
class AclDriverWorkTest : public AclDriverTest {
 protected:
  void SetUp() override {
    AclDriverTest::SetUp();
    if (IsSkipped()) return;
    const auto set_kernel_time = find<int (*)(std::uint64_t)>("cannSimSetKernelTime");
    launch = find<decltype(launch)>("rtKernelLaunch");
    if (set_kernel_time == nullptr || launch == nullptr) {
      GTEST_SKIP() << "needs work of a known length, which only the simulated runtime can launch";
    }
    ASSERT_EQ(set_kernel_time(3'600'000'000'000), 0);
    const auto create_stream = find<int (*)(void**)>("aclrtCreateStream");
    for (void*& stream : streams) ASSERT_EQ(create_stream(&stream), 0);
    synchronize = find<decltype(synchronize)>("aclrtSynchronizeStream");
  }

  void submit(void* stream) { ASSERT_EQ(launch(nullptr, 1, nullptr, 0, nullptr, stream), 0); }

  // A kernel that uses memory.
  void submit(void* stream, void* ptr, std::size_t bytes) {
    const auto use = find<decltype(&cannSimLaunch)>("cannSimLaunch");
    ASSERT_EQ(use(stream, reinterpret_cast<std::uintptr_t>(ptr), bytes), 0);
  }

  std::uintptr_t name(int stream) const {
    return reinterpret_cast<std::uintptr_t>(streams[stream]);
  }

  std::array<void*, 2> streams{};
  int (*synchronize)(void*) = nullptr;

 private:
  int (*launch)(const void*, std::uint32_t, void*, std::uint32_t, void*, void*) = nullptr;
};

TEST_F(AclDriverWorkTest, WaitsForWorkOfOtherStreams) {
  void* const stream = streams[0];
  void* ptr = allocator->allocate(0, 1000);
  submit(stream);
  allocator->record_stream(ptr, AclDriver::stream_token(stream, 0));
  allocator->deallocate(ptr);
  void* other = allocator->allocate(0, 1000);
  EXPECT_NE(other, ptr) << "the kernel still runs";
  ASSERT_EQ(synchronize(stream), 0);
  EXPECT_EQ(allocator->allocate(0, 1000), ptr);
  allocator->deallocate(ptr);
  allocator->deallocate(other);
}

TEST_F(AclDriverWorkTest, StreamsWaitForEachOther) {
  submit(streams[0]);
  const npualloc::DriverTable table = driver->table();
  ASSERT_NE(table.stream_wait, nullptr);
  std::uintptr_t event = 0;
  ASSERT_EQ(table.event_create(table.user, 0, &event), 0);
  ASSERT_EQ(table.event_record_fence(table.user, 0, event, name(0)), 0);
  ASSERT_EQ(table.stream_wait(table.user, 0, name(1), event), 0);
  std::int32_t completed = 1;
  ASSERT_EQ(table.event_query(table.user, event, &completed), 0);
  EXPECT_EQ(completed, 0) << "the host waited";
  ASSERT_EQ(synchronize(streams[1]), 0);
  ASSERT_EQ(table.event_query(table.user, event, &completed), 0);
  EXPECT_EQ(completed, 1) << "the second stream did not wait";
  const auto stat_of = find<decltype(&cannSimGetCallStat)>("cannSimGetCallStat");
  cannSimCallStat destroyed{};
  ASSERT_EQ(stat_of(0, "aclrtDestroyEvent", &destroyed), 0);
  const std::uint64_t before = destroyed.count;
  EXPECT_EQ(table.event_destroy(table.user, event), 0);
  ASSERT_EQ(stat_of(0, "aclrtDestroyEvent", &destroyed), 0);
  EXPECT_EQ(destroyed.count, before + 1);
}

TEST_F(AclDriverWorkTest, TheHostWaits) {
  const npualloc::DriverTable table = driver->table();
  std::uintptr_t event = 0;
  std::int32_t completed = 1;
  ASSERT_EQ(table.event_create(table.user, 0, &event), 0);
  const auto submit_and_record = [&] {
    submit(streams[0]);
    ASSERT_EQ(table.event_record(table.user, event, AclDriver::stream_token(streams[0], 0)), 0);
    ASSERT_EQ(table.event_query(table.user, event, &completed), 0);
    ASSERT_EQ(completed, 0);
  };
  submit_and_record();
  ASSERT_EQ(table.event_synchronize(table.user, event), 0);
  ASSERT_EQ(table.event_query(table.user, event, &completed), 0);
  EXPECT_EQ(completed, 1) << "for the event";
  submit_and_record();
  ASSERT_EQ(table.synchronize_device(table.user, 0), 0);
  ASSERT_EQ(table.event_query(table.user, event, &completed), 0);
  EXPECT_EQ(completed, 1) << "for the device";
  submit_and_record();
  ASSERT_NE(table.settle, nullptr);
  ASSERT_EQ(table.settle(table.user, 0), 0);
  ASSERT_EQ(table.event_query(table.user, event, &completed), 0);
  EXPECT_EQ(completed, 1) << "before it looks at memory";
  EXPECT_EQ(table.event_destroy(table.user, event), 0);
}

// What goes back too early is a hazard.
TEST_F(AclDriverWorkTest, ReturnsMemoryWhenItsWorkIsDone) {
  void* ptr = allocator->allocate(0, 1000, name(0));
  submit(streams[0], ptr, 1000);
  allocator->deallocate(ptr);
  allocator->empty_cache(0);
  EXPECT_EQ(allocator->stats(0).reserved_bytes.aggregate.current, 0);
}

TEST_F(AclDriverWorkTest, WaitsForTheDefaultStreamOfAnotherDevice) {
  if (driver->device_count() < 2) GTEST_SKIP() << "needs two devices";
  const auto set_device = find<int (*)(int)>("aclrtSetDevice");
  ASSERT_EQ(set_device(1), 0);
  submit(nullptr);
  ASSERT_EQ(set_device(0), 0);
  const npualloc::DriverTable table = driver->table();
  std::uintptr_t event = 0;
  ASSERT_EQ(table.event_create(table.user, 1, &event), 0);
  ASSERT_EQ(table.event_record(table.user, event, AclDriver::stream_token(nullptr, 1)), 0);
  std::int32_t completed = 1;
  ASSERT_EQ(table.event_query(table.user, event, &completed), 0);
  EXPECT_EQ(completed, 0) << "the kernel still runs";
  EXPECT_EQ(table.event_destroy(table.user, event), 0);
}

TEST_F(AclDriverTest, MapsVirtualMemory) {
  const npualloc::DriverTable table = driver->table();
  if (table.reserve_address == nullptr) GTEST_SKIP() << "the device runtime has no virtual memory";
  std::uintptr_t range = 0;
  std::uintptr_t handle = 0;
  ASSERT_EQ(table.reserve_address(table.user, 0, 64 * kMiB, &range), 0);
  ASSERT_EQ(table.malloc_physical(table.user, 0, 2 * kMiB, 0, &handle), 0);
  ASSERT_EQ(table.map(table.user, 0, range + 2 * kMiB, 2 * kMiB, handle), 0);
  EXPECT_EQ(table.unmap(table.user, 0, range + 2 * kMiB), 0);
  EXPECT_EQ(table.free_physical(table.user, 0, handle), 0);
  EXPECT_EQ(table.release_address(table.user, 0, range), 0);
}

TEST_F(AclDriverTest, TakesPagesOf1GWhereThereAreAndOthersWithAWarning) {
  const auto put_aside = find<decltype(&cannSimSetHuge1gPages)>("cannSimSetHuge1gPages");
  if (put_aside == nullptr) GTEST_SKIP() << "only the simulated runtime has pages when asked to";
  const npualloc::DriverTable table = driver->table();
  const auto free_ordinary = [&] {
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(table.memory_info(table.user, 0, &free, &total), 0);
    return free;
  };
  for (const std::uint64_t pages : {2, 0}) {
    ASSERT_EQ(put_aside(0, pages), 0);
    const std::size_t before = free_ordinary();
    std::uintptr_t addr = 0;
    std::uintptr_t handle = 0;
    testing::internal::CaptureStderr();
    ASSERT_EQ(table.malloc(table.user, 0, 1024 * kMiB, 1, &addr), 0);
    const std::string told = testing::internal::GetCapturedStderr();
    testing::internal::CaptureStderr();
    ASSERT_EQ(table.malloc_physical(table.user, 0, 1024 * kMiB, 1, &handle), 0);
    const std::string told_of_physical = testing::internal::GetCapturedStderr();
    EXPECT_EQ(told, told_of_physical);
    EXPECT_EQ(told.find("has not set enough 1G pages aside") == std::string::npos, pages != 0);
    EXPECT_EQ(before - free_ordinary(), pages != 0 ? 0 : 2048 * kMiB);
    EXPECT_EQ(table.free(table.user, 0, addr), 0);
    EXPECT_EQ(table.free_physical(table.user, 0, handle), 0);
  }
}

TEST_F(AclDriverTest, LeavesTheCurrentDeviceAlone) {
  if (driver->device_count() < 2) GTEST_SKIP() << "needs two devices";
  void* ptr = allocator->allocate(1, 1000);
  int device = -1;
  ASSERT_EQ(find<int (*)(int*)>("aclrtGetDevice")(&device), 0);
  EXPECT_EQ(device, 0);
  allocator->deallocate(ptr);
}

TEST_F(AclDriverTest, LeavesTheProgramsOwnContextCurrent) {
  if (driver->device_count() < 2) GTEST_SKIP() << "needs two devices";
  void* own = nullptr;
  ASSERT_EQ(find<int (*)(void**, int)>("aclrtCreateContext")(&own, 0), 0);
  void* ptr = allocator->allocate(1, 1000);
  void* current = nullptr;
  ASSERT_EQ(find<int (*)(void**)>("aclrtGetCurrentContext")(&current), 0);
  EXPECT_EQ(current, own);
  allocator->deallocate(ptr);
  ASSERT_EQ(find<int (*)(int)>("aclrtSetDevice")(0), 0);
  EXPECT_EQ(find<int (*)(void*)>("aclrtDestroyContext")(own), 0);
}

// Memory that keeps what is written to it; the runtime reads that when it is loaded.
class AclDriverDebugTest : public AclDriverTest {
 protected:
  static void SetUpTestSuite() {
    is_late = dlopen("libascendcl.so", RTLD_NOW | RTLD_NOLOAD) != nullptr;
    setenv("CANN_SIM_MODE", "backed", 1);
    AclDriverTest::SetUpTestSuite();
  }

  void SetUp() override {
    AclDriverTest::SetUp();
    if (!IsSkipped() && is_late) GTEST_SKIP() << "another test of this process has loaded it";
  }

  static inline bool is_late = false;
};

TEST_F(AclDriverDebugTest, LooksAtTheDevicesMemory) {
  Allocator checked(driver->table(), {.config = "", .pad_bytes = 0, .debug = "redzones"});
  checked.init(1);
  void* ptr = checked.allocate(0, 1000);
  EXPECT_GE(checked.check_memory(0), 512u);
  const auto set = find<int (*)(void*, std::size_t, int, std::size_t)>("aclrtMemset");
  ASSERT_EQ(set(static_cast<char*>(ptr) + 1000, 3, 9, 3), 0);
  EXPECT_THROW(checked.check_memory(0), npualloc::MemoryDamage);
  checked.deallocate(ptr);
  checked.empty_cache(0);
}

}  // namespace
