// The interpreter's lock around a wait, with an interpreter of this file's own, which the library
// finds by name.
#include "../../cpp/torch_npu/python_stack.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace {

thread_local bool held = false;
std::atomic<bool> finalizing{false};
int thread_state = 0;

}  // namespace

extern "C" {

int Py_IsInitialized() { return 1; }
int PyGILState_Check() { return held ? 1 : 0; }
void* PyGILState_GetThisThreadState() { return &thread_state; }
int PyGILState_Ensure() { return 0; }
void PyGILState_Release(int) {}
void* PyEval_SaveThread() {
  held = false;
  return &thread_state;
}
// As CPython to 3.13: where the interpreter shuts down, the thread ends.
void PyEval_RestoreThread(void*) {
  if (finalizing.load()) pthread_exit(nullptr);
  held = true;
}
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

// Ends the process while another thread waits; with status 0 where that thread does no harm.
void end_during_a_wait() {
  std::atomic<bool> waits{false};
  std::atomic<bool> over{false};
  std::thread([&] {
    held = true;
    {
      const Released released;
      waits.store(true);
      while (!finalizing.load()) std::this_thread::yield();
    }
    over.store(true);
  }).detach();
  while (!waits.load()) std::this_thread::yield();
  finalizing.store(true);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  _exit(over.load() ? 1 : 0);
}

TEST(ReleasedDeathTest, AThreadThatComesBackTooLateDoesNotEndTheProcess) {
  EXPECT_EXIT(end_during_a_wait(), testing::ExitedWithCode(0), "");
}

}  // namespace
