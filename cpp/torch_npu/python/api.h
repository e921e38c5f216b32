// Functions of Python's C API, found by name in the process: the library does not link it.
#pragma once

#include <dlfcn.h>

namespace npualloc::torch_npu_plugin::python {

// False where there is no such function, or no Python.
template <class Function>
bool find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

}  // namespace npualloc::torch_npu_plugin::python
