#include "api.h"

#include "stack.h"

namespace npualloc::torch_npu_plugin::python {

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

Locked::Locked() : state_(staying([] { return api().ensure(); })) {
  api().fetch_error(&type_, &value_, &trace_);
}

Locked::~Locked() {
  api().restore_error(type_, value_, trace_);
  api().release(state_);
}

std::string text_of(Object object, const char* attribute) {
  const Object value = api().attribute(object, attribute);
  const char* text = value == nullptr ? nullptr : api().utf8(value);
  std::string result = text == nullptr ? "?" : text;
  if (text == nullptr) api().clear_error();
  if (value != nullptr) api().decrease(value);
  return result;
}

}  // namespace npualloc::torch_npu_plugin::python
