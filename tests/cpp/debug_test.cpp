// npualloc::Allocator with AllocatorOptions::debug, over a device whose memory keeps what is
// written to it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <unordered_map>

#include "fake_device.h"
#include "npualloc/allocator.h"

namespace {

using npualloc::Allocator;
using npualloc::AllocatorOptions;
using npualloc::Status;
using npualloc_test::FakeDevice;
using testing::Test;

// Bytes by address. The table's `user` stays the FakeDevice's, so there is one memory for a test.
std::unordered_map<std::uintptr_t, std::uint8_t> memory;
int settled = 0;

void write(std::uintptr_t addr, std::size_t bytes, std::uint8_t value) {
  for (std::size_t i = 0; i < bytes; ++i) memory[addr + i] = value;
}

class DebugTest : public Test {
 protected:
  DebugTest() {
    memory.clear();
    settled = 0;
  }

  Allocator make(const std::string& words) {
    npualloc::DriverTable table = device.table();
    table.settle = [](void*, std::int32_t) {
      ++settled;
      return 0;
    };
    table.fill = [](void*, std::int32_t, std::uintptr_t addr, std::size_t bytes,
                    std::uint8_t value) {
      write(addr, bytes, value);
      return 0;
    };
    table.read = [](void*, std::int32_t, std::uintptr_t addr, std::size_t bytes,
                    std::uint8_t* into) {
      for (std::size_t i = 0; i < bytes; ++i) into[i] = memory[addr + i];
      return 0;
    };
    table.stack = [](void*, std::uint8_t* into, std::size_t capacity) -> std::size_t {
      constexpr char kText[] = "here.cpp:1\nthere.cpp:2\n";
      const std::size_t count = std::min(capacity, sizeof kText - 1);
      std::memcpy(into, kText, count);
      return count;
    };
    Allocator allocator(table, AllocatorOptions{"", 0, words});
    allocator.init(1);
    return allocator;
  }

  FakeDevice device;
};

template <typename Error>
std::string text_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::uintptr_t address(void* ptr) { return reinterpret_cast<std::uintptr_t>(ptr); }

TEST_F(DebugTest, TellsOfAWritePastTheEnd) {
  Allocator allocator = make("redzones,history");
  void* ptr = allocator.allocate(0, 1000);
  EXPECT_GE(allocator.check_memory(0), 512u);
  write(address(ptr) + 1000, 3, 9);
  allocator.deallocate(ptr);
  EXPECT_EQ(settled, 2);
  const std::string text =
      text_of<npualloc::MemoryDamage>([&] { (void)allocator.allocate(0, 10); });
  EXPECT_NE(text.find("past the end of a block: 3 bytes differ, at offsets 1000 to 1002"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("there.cpp:2"), std::string::npos) << text;
  allocator.deallocate(allocator.allocate(0, 10));
}

TEST_F(DebugTest, TellsOfAWriteAfterAFree) {
  Allocator allocator = make("poison");
  void* ptr = allocator.allocate(0, 1000);
  allocator.deallocate(ptr);
  write(address(ptr), 1, 0);
  EXPECT_THROW(allocator.empty_cache(0), npualloc::MemoryDamage);
  EXPECT_EQ(device.frees, 0);
  allocator.empty_cache(0);
  EXPECT_EQ(device.frees, 1);
}

TEST_F(DebugTest, TellsWhoFreedABlockFirst) {
  Allocator allocator = make("history");
  void* ptr = allocator.allocate(0, 1000);
  allocator.deallocate(ptr);
  const std::string text = text_of<npualloc::InvalidPointer>([&] { allocator.deallocate(ptr); });
  EXPECT_EQ(text.rfind("invalid device pointer: 0x", 0), 0u) << text;
  EXPECT_NE(text.find("The block was freed before."), std::string::npos) << text;
  EXPECT_EQ(settled, 0);
}

TEST_F(DebugTest, LooksAtNothingWithoutWords) {
  Allocator allocator = make("");
  void* ptr = allocator.allocate(0, 1000);
  write(address(ptr), 2000, 1);
  allocator.deallocate(ptr);
  EXPECT_EQ(allocator.check_memory(0), 0u);
  EXPECT_EQ(settled, 0);
  EXPECT_THROW(allocator.check_memory(1), npualloc::InvalidDevice);
}

TEST_F(DebugTest, RefusesWordsItDoesNotKnow) {
  const std::string text = text_of<npualloc::InvalidArgument>([&] { (void)make("poison,gold"); });
  EXPECT_NE(text.find("'gold'"), std::string::npos) << text;
  EXPECT_THROW((void)make("units"), npualloc::InvalidArgument);
}

}  // namespace
