// Functions of Python's C API, found by name in the process: the library does not link it.
#pragma once

#include <dlfcn.h>

#include <string>

namespace npualloc::torch_npu_plugin::python {

using Object = void*;

// False where there is no such function, or no Python.
template <class Function>
bool find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

// The stable functions of CPython 3.9 and later that are used to read a stack.
struct Api {
  int (*is_initialized)();
  int (*check_lock)();
  Object (*this_thread)();
  int (*ensure)();
  void (*release)(int);
  Object (*save_thread)();
  void (*restore_thread)(Object);
  Object (*get_frame)();
  Object (*frame_back)(Object);
  Object (*frame_code)(Object);
  int (*frame_line)(Object);
  Object (*attribute)(Object, const char*);
  const char* (*utf8)(Object);
  void (*increase)(Object);
  void (*decrease)(Object);
  void (*fetch_error)(Object*, Object*, Object*);
  void (*restore_error)(Object, Object, Object);
  void (*clear_error)();
  // Named differently from 3.13 on.
  int (*is_finalizing)();
  // All of them were found.
  bool complete;
};

const Api& api();

// Holds the interpreter's lock while it lives. An exception that is being handled is set aside. For
// a thread that `may_lock`.
class Locked {
 public:
  Locked();
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  int state_;
  Object type_ = nullptr;
  Object value_ = nullptr;
  Object trace_ = nullptr;
};

// An attribute that is a text; "?" where there is none, or it is not UTF-8. With the lock.
std::string text_of(Object object, const char* attribute);

}  // namespace npualloc::torch_npu_plugin::python
