// npualloc::c10_backend::DeviceAllocator over a device with virtual memory.
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "fake_device.h"
#include "npualloc/c10_allocator.h"

namespace {

using npualloc::DriverTable;
using npualloc::c10_backend::DeviceAllocator;
using npualloc_test::FakeDevice;
using npualloc_test::kMiB;

// The table's `user` stays the FakeDevice's, so there is one of these for a test.
int handles = 0;
std::int32_t free_code = 0;

DriverTable with_virtual_memory(DriverTable table) {
  table.reserve_address = [](void* user, std::int32_t, std::size_t bytes, std::uintptr_t* addr) {
    auto& device = *static_cast<FakeDevice*>(user);
    *addr = device.next;
    device.next += bytes;
    return 0;
  };
  table.release_address = [](void*, std::int32_t, std::uintptr_t) { return 0; };
  table.malloc_physical = [](void*, std::int32_t, std::size_t, std::int32_t,
                             std::uintptr_t* handle) {
    static std::uintptr_t last = 0;
    ++handles;
    *handle = ++last;
    return 0;
  };
  table.free_physical = [](void*, std::int32_t, std::uintptr_t) {
    if (free_code == 0) --handles;
    return free_code;
  };
  table.map = [](void*, std::int32_t, std::uintptr_t, std::size_t, std::uintptr_t) { return 0; };
  table.unmap = [](void*, std::int32_t, std::uintptr_t) { return 0; };
  return table;
}

class Hooks : public npualloc::c10_backend::Hooks {
 public:
  c10::DeviceIndex current_device() override { return 0; }
  std::uintptr_t current_stream(c10::DeviceIndex) override { return 0; }
  void copy(void*, const void*, std::size_t) override {}
};

class C10VirtualTest : public testing::Test {
 protected:
  void SetUp() override {
    allocator.init(1);
    allocator.allocate(30 * kMiB);
    EXPECT_GT(handles, 0);
    free_code = 507899;
  }

  void TearDown() override {
    EXPECT_GT(handles, 0);
    free_code = 0;
    allocator.emptyCache();
    EXPECT_EQ(handles, 0);
  }

  FakeDevice device;
  Hooks hooks;
  DeviceAllocator allocator{
      hooks, with_virtual_memory(device.table()), {.config = "expandable_segments:True"}};
};

TEST_F(C10VirtualTest, ReturnsLaterWhatTheDriverDidNotTakeBack) {
  EXPECT_THROW(allocator.emptyCache(), c10::Error);
  allocator.resetAccumulatedStats(0);
}

// Not by emptyCache, so that only the statistics tell that the device was used.
TEST_F(C10VirtualTest, ReturnsWhatTheCoreCouldNotReturn) {
  EXPECT_THROW(allocator.core().empty_cache(0), npualloc::Error);
}

}  // namespace
