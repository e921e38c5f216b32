// The interpreter's lock around a wait, with an interpreter of this file's own, which the library
// finds by name.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "../../cpp/torch_npu/python/stack.h"

namespace {

thread_local bool held = false;
std::atomic<bool> finalizing{false};
std::atomic<bool> finalizing_soon{false};
int thread_state = 0;

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
void* PyEval_GetFrame() { return nullptr; }
void* PyFrame_GetBack(void*) { return nullptr; }
void* PyFrame_GetCode(void*) { return nullptr; }
int PyFrame_GetLineNumber(void*) { return 0; }
void* PyObject_GetAttrString(void*, const char*) { return nullptr; }
const char* PyUnicode_AsUTF8(void*) { return nullptr; }
void Py_IncRef(void*) {}
void Py_DecRef(void*) {}
void PyErr_Fetch(void**, void**, void**) {}
void PyErr_Restore(void*, void*, void*) {}
void PyErr_Clear() {}
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
