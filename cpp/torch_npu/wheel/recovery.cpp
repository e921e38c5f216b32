#include "recovery.h"

#include "../python/api.h"

namespace npualloc::torch_npu_plugin::recovery {

namespace {

using Object = void*;

// The functions of Python's C API that are used.
struct Api {
  int (*ensure)();
  void (*release)(int);
  Object (*import)(const char*);
  Object (*call)(Object, const char*, const char*, ...);
  std::ptrdiff_t (*length)(Object);
  Object (*item)(Object, std::ptrdiff_t);
  Object (*value)(Object, const char*);
  unsigned long long (*number)(Object);
  Object (*make_bool)(long);
  Object (*error)();
  void (*clear_error)();
  void (*decrease)(Object);
};

const Api* api() {
  static const Api* found = []() -> const Api* {
    using python::find;
    static Api api;
    const bool all =
        find(api.ensure, "PyGILState_Ensure") && find(api.release, "PyGILState_Release") &&
        find(api.import, "PyImport_ImportModule") && find(api.call, "PyObject_CallMethod") &&
        find(api.length, "PyObject_Size") && find(api.item, "PyList_GetItem") &&
        find(api.value, "PyMapping_GetItemString") &&
        find(api.number, "PyLong_AsUnsignedLongLongMask") &&
        find(api.make_bool, "PyBool_FromLong") && find(api.error, "PyErr_Occurred") &&
        find(api.clear_error, "PyErr_Clear") && find(api.decrease, "Py_DecRef");
    return all ? &api : nullptr;
  }();
  return found;
}

// Holds the interpreter's lock, and what was obtained under it.
class Interpreter {
 public:
  Interpreter() : api_(*checked(api())), state_(api_.ensure()) {}
  ~Interpreter() {
    for (const Object object : owned_) api_.decrease(object);
    api_.release(state_);
  }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // A new reference, which is dropped at the end. Throws where there is none.
  Object own(Object object) {
    if (object == nullptr) fail();
    owned_.push_back(object);
    return object;
  }
  std::uint64_t number(Object mapping, const char* key) {
    const std::uint64_t number = api_.number(own(api_.value(mapping, key)));
    if (api_.error() != nullptr) fail();
    return number;
  }
  Object module() { return own(api_.import("torch_npu._C")); }
  const Api& api_of() const { return api_; }

  [[noreturn]] void fail() {
    api_.clear_error();
    TORCH_CHECK(false, "npualloc: torch_npu's record of bad memory cannot be reached",
                PTA_ERROR(ErrCode::INTERNAL));
  }

 private:
  static const Api* checked(const Api* found) {
    TORCH_CHECK(found != nullptr,
                "npualloc: torch_npu's record of bad memory is reached through Python, which this "
                "process does not have",
                PTA_ERROR(ErrCode::NOT_SUPPORT));
    return found;
  }

  const Api& api_;
  int state_;
  std::vector<Object> owned_;
};

}  // namespace

std::vector<aclrtMemUceInfo> known_ranges() {
  Interpreter python;
  const Api& api = python.api_of();
  const Object list = python.own(api.call(python.module(), "_npu_get_uce_addr", nullptr));
  const std::ptrdiff_t count = api.length(list);
  if (count < 0) python.fail();
  std::vector<aclrtMemUceInfo> ranges(static_cast<std::size_t>(count));
  for (std::ptrdiff_t at = 0; at < count; ++at) {
    const Object range = api.item(list, at);  // Borrowed from the list.
    if (range == nullptr) python.fail();
    aclrtMemUceInfo& found = ranges[static_cast<std::size_t>(at)];
    found.addr = reinterpret_cast<void*>(python.number(range, "ptr"));
    found.len = python.number(range, "size");
  }
  return ranges;
}

void set_unsafe() {
  Interpreter python;
  const Api& api = python.api_of();
  const Object yes = python.own(api.make_bool(1));
  python.own(api.call(python.module(), "_set_npu_data_unsafe_flag", "(O)", yes));
}

}  // namespace npualloc::torch_npu_plugin::recovery
