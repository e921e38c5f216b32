// What npualloc::Allocator asks of a driver table.
#include <gtest/gtest.h>

#include <string>

#include "fake_device.h"
#include "npualloc/allocator.h"

namespace {

using npualloc::Allocator;
using npualloc::DriverTable;
using npualloc_test::FakeDevice;

// What the table is refused with; empty where it is accepted.
std::string refusal(const DriverTable& table) {
  try {
    const Allocator allocator(table);
  } catch (const npualloc::InvalidArgument& error) {
    return error.what();
  }
  return {};
}

template <typename Function>
std::string refusal_without(DriverTable table, Function DriverTable::*function) {
  table.*function = nullptr;
  return refusal(table);
}

TEST(DriverTableTest, MustHaveWhatEveryDeviceHas) {
  FakeDevice device;
  const auto expect_needed = [&](auto function, const std::string& name) {
    EXPECT_EQ(refusal_without(device.table(), function), "the driver table has no " + name);
  };
  expect_needed(&DriverTable::malloc, "malloc");
  expect_needed(&DriverTable::free, "free");
  expect_needed(&DriverTable::memory_info, "memory_info");
  expect_needed(&DriverTable::synchronize_device, "synchronize_device");
  expect_needed(&DriverTable::event_create, "event_create");
  expect_needed(&DriverTable::event_destroy, "event_destroy");
  expect_needed(&DriverTable::event_record, "event_record");
  expect_needed(&DriverTable::event_query, "event_query");
  expect_needed(&DriverTable::event_synchronize, "event_synchronize");
  expect_needed(&DriverTable::run_free_callbacks, "run_free_callbacks");
  expect_needed(&DriverTable::release_external_caches, "release_external_caches");
}

TEST(DriverTableTest, HasAllOfVirtualMemoryOrNone) {
  FakeDevice device;
  DriverTable table = device.table();
  EXPECT_EQ(refusal(table), "") << "none";
  table.reserve_address = [](void*, std::int32_t, std::size_t, std::uintptr_t*) { return 0; };
  table.release_address = [](void*, std::int32_t, std::uintptr_t) { return 0; };
  table.malloc_physical = [](void*, std::int32_t, std::size_t, std::int32_t, std::uintptr_t*) {
    return 0;
  };
  table.free_physical = [](void*, std::int32_t, std::uintptr_t) { return 0; };
  table.map = [](void*, std::int32_t, std::uintptr_t, std::size_t, std::uintptr_t) { return 0; };
  table.unmap = [](void*, std::int32_t, std::uintptr_t) { return 0; };
  EXPECT_EQ(refusal(table), "") << "all";
  const auto expect_needed = [&](auto function, const std::string& name) {
    EXPECT_EQ(refusal_without(table, function),
              "the driver table has some functions of virtual memory, but no " + name);
  };
  expect_needed(&DriverTable::reserve_address, "reserve_address");
  expect_needed(&DriverTable::release_address, "release_address");
  expect_needed(&DriverTable::malloc_physical, "malloc_physical");
  expect_needed(&DriverTable::free_physical, "free_physical");
  expect_needed(&DriverTable::map, "map");
  expect_needed(&DriverTable::unmap, "unmap");
}

TEST(DriverTableTest, TakesAnAddressOfZeroForAFullDevice) {
  FakeDevice device;
  npualloc::DriverTable table = device.table();
  table.malloc = [](void*, std::int32_t, std::size_t, std::int32_t, std::uintptr_t* addr) {
    *addr = 0;
    return 0;
  };
  Allocator allocator(table);
  allocator.init(1);
  EXPECT_THROW(allocator.allocate(0, 1000), npualloc::OutOfMemory);
  EXPECT_EQ(allocator.stats(0).allocation.aggregate.current, 0);
  EXPECT_EQ(allocator.stats(0).reserved_bytes.aggregate.current, 0);
}

}  // namespace
