// The Python interpreter, where there is one: found by name, since the library does not link it.
#pragma once

#include <cxxabi.h>

#include <string>

namespace npualloc::torch_npu_plugin::python {

// Whether this thread holds the interpreter's lock.
bool holds_lock();

// Whether this thread may ask for the interpreter's lock: one that runs Python, while the
// interpreter is not shutting down. Any other could wait for good, for a thread that holds the lock
// and waits.
bool may_lock();

// Whether the interpreter is shutting down: a thread that lets its lock go may not get it back.
bool is_finalizing();

// Waits until the process ends.
[[noreturn]] void stay();

// Makes a call that may take the interpreter's lock. While the interpreter shuts down that ends the
// thread by unwinding it (pthread_exit, CPython to 3.13), which can't go through the core: the
// process would be terminated. The thread stays instead, as it does from Python 3.14 on.
template <typename Call>
auto staying(Call call) -> decltype(call()) {
  try {
    return call();
  } catch (abi::__forced_unwind&) {
    stay();
  }
}

// Lets the interpreter's lock go, if this thread holds it and may take it again, and takes it again
// at the end.
class Released {
 public:
  Released();
  ~Released();
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

 private:
  void* state_;
};

// This thread's Python stack, a line for each frame, innermost first, at most `frames` of them;
// empty on a thread that runs no Python. Takes the interpreter's lock where the thread has let it
// go; an exception that is being handled stays.
std::string stack(int frames);

}  // namespace npualloc::torch_npu_plugin::python
