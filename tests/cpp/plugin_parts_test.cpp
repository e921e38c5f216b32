// The parts of the torch_npu plug-in that need no torch_npu.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "../../cpp/torch_npu/driver/soc.h"
#include "../../cpp/torch_npu/wheel/got_hook.h"

namespace {

using npualloc::torch_npu_plugin::padding_for;
using npualloc::torch_npu_plugin::redirect_import;

TEST(PaddingTest, IsThirtyTwoBytesBeforeAscend950) {
  EXPECT_EQ(padding_for("Ascend910B1", "9.2.0"), 32u);
  EXPECT_EQ(padding_for("", "9.2.0"), 32u);
}

TEST(PaddingTest, GoesAwayWithTheVersionOnAscend950) {
  EXPECT_EQ(padding_for("Ascend950PR_9599", "9.1.0"), 0u);
  EXPECT_EQ(padding_for("Ascend950PR_9599", "10.0"), 0u);
  EXPECT_EQ(padding_for("Ascend950PR_9599", "9.0.0"), 32u);
  EXPECT_EQ(padding_for("Ascend950PR_9599", "8.5.0"), 32u);
  EXPECT_EQ(padding_for("Ascend950PR_9599", ""), 32u);
  EXPECT_EQ(padding_for("Ascend950PR_9599", "unknown"), 32u);
}

TEST(RedirectImportTest, LeavesUnknownLibrariesAlone) {
  EXPECT_EQ(redirect_import("libno_such_library.so", "malloc", nullptr), nullptr);
}

TEST(RedirectImportTest, LeavesUnknownFunctionsAlone) {
  EXPECT_EQ(redirect_import("libstdc++.so.6", "no_such_function", nullptr), nullptr);
}

int redirected_calls = 0;
using Write = ssize_t (*)(int, const void*, size_t);
Write original_write = nullptr;
ssize_t counting_write(int file, const void* data, size_t size) {
  ++redirected_calls;
  return original_write(file, data, size);
}

TEST(RedirectImportTest, CatchesTheCallsOfOneLibrary) {
  original_write = &write;
  void* previous =
      redirect_import("libstdc++.so.6", "write", reinterpret_cast<void*>(&counting_write));
  if (previous == nullptr) GTEST_SKIP() << "this libstdc++ does not import write()";
  std::ofstream out("/dev/null");
  out << 'x' << std::flush;
  EXPECT_EQ(redirected_calls, 1);
  EXPECT_EQ(redirect_import("libstdc++.so.6", "write", previous),
            reinterpret_cast<void*>(&counting_write));
  out << 'x' << std::flush;
  EXPECT_EQ(redirected_calls, 1) << "the original is back";
}

}  // namespace
