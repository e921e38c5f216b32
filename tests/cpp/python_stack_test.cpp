// The interpreter's lock around a wait, with an interpreter of this file's own, which the library
// finds by name.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "../../cpp/torch_npu/python/frames.h"
#include "../../cpp/torch_npu/python/stack.h"

namespace {

thread_local bool held = false;
std::atomic<bool> finalizing{false};
std::atomic<bool> finalizing_soon{false};
int thread_state = 0;

// What Python code runs: each function's name is that of its file, too.
struct Frame {
  Frame* caller;
  const char* name;
  int line;
};
Frame* innermost = nullptr;
// Taken, and not given back.
int references = 0;
void* error = nullptr;

template <typename Object>
Object* taken(Object* object) {
  if (object != nullptr) ++references;
  return object;
}

}  // namespace

// Found by name in the process.
#pragma GCC visibility push(default)
extern "C" {

// As CPython to 3.13: where the interpreter shuts down, the thread ends.
static void take() {
  if (finalizing_soon.load()) finalizing.store(true);
  if (finalizing.load()) pthread_exit(nullptr);
  held = true;
}

int Py_IsInitialized() { return 1; }
int PyGILState_Check() { return held ? 1 : 0; }
void* PyGILState_GetThisThreadState() { return &thread_state; }
int PyGILState_Ensure() {
  take();
  return 0;
}
void PyGILState_Release(int) {}
void* PyEval_SaveThread() {
  held = false;
  return &thread_state;
}
void PyEval_RestoreThread(void*) { take(); }
void* PyEval_GetFrame() { return innermost; }
void* PyFrame_GetBack(void* frame) { return taken(static_cast<Frame*>(frame)->caller); }
void* PyFrame_GetCode(void* frame) { return taken(frame); }
int PyFrame_GetLineNumber(void* frame) { return static_cast<Frame*>(frame)->line; }
void* PyObject_GetAttrString(void* code, const char*) {
  EXPECT_EQ(error, nullptr) << "not to be called with an exception under way";
  return taken(code);
}
const char* PyUnicode_AsUTF8(void* text) {
  const char* name = static_cast<Frame*>(text)->name;
  if (name == nullptr) error = text;
  return name;
}
void Py_IncRef(void*) { ++references; }
void Py_DecRef(void*) { --references; }
void PyErr_Fetch(void** type, void**, void**) { *type = std::exchange(error, nullptr); }
void PyErr_Restore(void* type, void*, void*) { error = type; }
void PyErr_Clear() { error = nullptr; }
int Py_IsFinalizing() { return finalizing.load() ? 1 : 0; }

}  // extern "C"
#pragma GCC visibility pop

namespace {

using npualloc::torch_npu_plugin::python::Released;

TEST(Released, GivesTheLockBackAndTakesItAgain) {
  held = true;
  {
    const Released released;
    EXPECT_FALSE(held);
  }
  EXPECT_TRUE(held);
  held = false;
  {
    const Released released;
    EXPECT_FALSE(held);
  }
  EXPECT_FALSE(held);
}

TEST(Released, KeepsTheLockWhileTheInterpreterShutsDown) {
  held = true;
  finalizing.store(true);
  {
    const Released released;
    EXPECT_TRUE(held);
    finalizing.store(false);
  }
  EXPECT_TRUE(held);
}

TEST(Stack, NamesTheInnermostFrames) {
  using npualloc::torch_npu_plugin::python::stack;
  Frame outer{nullptr, "outer", 3};
  Frame middle{&outer, "middle", 2};
  Frame inner{&middle, "inner", 1};
  innermost = &inner;
  const std::string two = "inner:1 in inner\nmiddle:2 in middle\n";
  EXPECT_EQ(stack(2), two);
  EXPECT_EQ(stack(3), two + "outer:3 in outer\n");
  EXPECT_EQ(stack(4), stack(3));
  EXPECT_EQ(references, 0);
  innermost = nullptr;
  EXPECT_EQ(stack(2), "");
}

TEST(Stack, LeavesAnExceptionUnderWayAlone) {
  Frame nameless{nullptr, nullptr, 1};
  innermost = &nameless;
  error = &nameless;
  EXPECT_EQ(npualloc::torch_npu_plugin::python::stack(1), "?:1 in ?\n");
  EXPECT_EQ(error, &nameless);
  EXPECT_EQ(references, 0);
}

TEST(Frames, LeaveAnExceptionUnderWayAlone) {
  namespace python_frames = npualloc::torch_npu_plugin::python_frames;
  Frame nameless{nullptr, nullptr, 1};
  innermost = &nameless;
  error = &nameless;
  std::vector<python_frames::Frame> frames;
  python_frames::gather(frames);
  EXPECT_EQ(python_frames::text(frames), "? ?:1");
  EXPECT_EQ(std::exchange(error, nullptr), &nameless);
  EXPECT_EQ(std::exchange(references, 0), 1) << "the code object is kept";
}

// Ends the process while another thread does something; with status 0 where that thread does no
// harm.
template <typename Work>
void end_during(Work work) {
  std::atomic<bool> over{false};
  std::thread([&] {
    work();
    over.store(true);
  }).detach();
  while (!finalizing.load()) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  _exit(over.load() ? 1 : 0);
}

void wait_without_the_lock() noexcept {
  held = true;
  const Released released;
  finalizing.store(true);
}

void ask_for_the_stack() noexcept {
  finalizing_soon.store(true);
  npualloc::torch_npu_plugin::python::stack(1);
}

void wait_as_torch_npu_does() noexcept {
  finalizing.store(true);
  npualloc::torch_npu_plugin::python::staying([] { PyEval_RestoreThread(&thread_state); });
}

TEST(ReleasedDeathTest, AThreadThatComesBackTooLateDoesNotEndTheProcess) {
  EXPECT_EXIT(end_during(wait_without_the_lock), testing::ExitedWithCode(0), "");
}

TEST(ReleasedDeathTest, AThreadThatAsksTooLateDoesNotEndTheProcess) {
  EXPECT_EXIT(end_during(ask_for_the_stack), testing::ExitedWithCode(0), "");
}

TEST(ReleasedDeathTest, AThreadWhoseWaitComesBackTooLateDoesNotEndTheProcess) {
  EXPECT_EXIT(end_during(wait_as_torch_npu_does), testing::ExitedWithCode(0), "");
}

}  // namespace
