#include "stack.h"

#include <unistd.h>

#include "api.h"

namespace npualloc::torch_npu_plugin::python {

namespace {

using Object = void*;

// The stable functions of CPython 3.9 and later that are used here.
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
  bool complete;
};

const Api& api() {
  static const Api found = [] {
    Api api{};
    api.complete =
        find(api.is_initialized, "Py_IsInitialized") && find(api.check_lock, "PyGILState_Check") &&
        find(api.this_thread, "PyGILState_GetThisThreadState") &&
        find(api.ensure, "PyGILState_Ensure") && find(api.release, "PyGILState_Release") &&
        find(api.save_thread, "PyEval_SaveThread") &&
        find(api.restore_thread, "PyEval_RestoreThread") &&
        find(api.get_frame, "PyEval_GetFrame") && find(api.frame_back, "PyFrame_GetBack") &&
        find(api.frame_code, "PyFrame_GetCode") && find(api.frame_line, "PyFrame_GetLineNumber") &&
        find(api.attribute, "PyObject_GetAttrString") && find(api.utf8, "PyUnicode_AsUTF8") &&
        find(api.increase, "Py_IncRef") && find(api.decrease, "Py_DecRef") &&
        find(api.fetch_error, "PyErr_Fetch") && find(api.restore_error, "PyErr_Restore") &&
        find(api.clear_error, "PyErr_Clear") &&
        (find(api.is_finalizing, "Py_IsFinalizing") || find(api.is_finalizing, "_Py_IsFinalizing"));
    return api;
  }();
  return found;
}

std::string text_of(Object object, const char* attribute) {
  const Object value = api().attribute(object, attribute);
  const char* text = value == nullptr ? nullptr : api().utf8(value);
  std::string result = text == nullptr ? "?" : text;
  if (text == nullptr) api().clear_error();
  if (value != nullptr) api().decrease(value);
  return result;
}

}  // namespace

bool holds_lock() {
  return api().complete && api().is_initialized() != 0 && api().check_lock() != 0;
}

bool may_lock() {
  return api().complete && api().is_initialized() != 0 && !is_finalizing() &&
         api().this_thread() != nullptr;
}

bool is_finalizing() { return api().complete && api().is_finalizing() != 0; }

Released::Released() : state_(holds_lock() && !is_finalizing() ? api().save_thread() : nullptr) {}

Released::~Released() {
  if (state_ != nullptr) staying([this] { api().restore_thread(state_); });
}

void stay() {
  for (;;) pause();
}

std::string stack(int frames) {
  if (!may_lock()) return {};
  const int locked = staying([] { return api().ensure(); });
  Object type = nullptr;
  Object value = nullptr;
  Object trace = nullptr;
  api().fetch_error(&type, &value, &trace);
  std::string text;
  Object frame = api().get_frame();  // Borrowed, unlike those behind it.
  if (frame != nullptr) api().increase(frame);
  for (; frame != nullptr && frames > 0; --frames) {
    const Object code = api().frame_code(frame);
    text += text_of(code, "co_filename") + ':' + std::to_string(api().frame_line(frame)) + " in " +
            text_of(code, "co_name") + '\n';
    api().decrease(code);
    const Object back = api().frame_back(frame);
    api().decrease(frame);
    frame = back;
  }
  if (frame != nullptr) api().decrease(frame);
  api().restore_error(type, value, trace);
  api().release(locked);
  return text;
}

}  // namespace npualloc::torch_npu_plugin::python
