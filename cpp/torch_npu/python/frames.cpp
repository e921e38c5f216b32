#include "frames.h"

#include <mutex>
#include <unordered_set>

#include "api.h"
#include "stack.h"

namespace npualloc::torch_npu_plugin::python_frames {

namespace {

// The functions of Python's C API that are used; all are part of 3.9 and later.
struct Api {
  int (*initialized)();
  int (*ensure)();
  void (*release)(int);
  void* (*current_frame)();
  void* (*frame_back)(void*);
  void* (*frame_code)(void*);
  int (*frame_line)(void*);
  void (*increase)(void*);
  void (*decrease)(void*);
  void* (*attribute)(void*, const char*);
  const char* (*utf8)(void*);
  void (*clear_error)();
};

const Api* api() {
  static const Api* found = []() -> const Api* {
    using python::find;
    static Api api;
    const bool all =
        find(api.initialized, "Py_IsInitialized") && find(api.ensure, "PyGILState_Ensure") &&
        find(api.release, "PyGILState_Release") && find(api.current_frame, "PyEval_GetFrame") &&
        find(api.frame_back, "PyFrame_GetBack") && find(api.frame_code, "PyFrame_GetCode") &&
        find(api.frame_line, "PyFrame_GetLineNumber") && find(api.increase, "Py_IncRef") &&
        find(api.decrease, "Py_DecRef") && find(api.attribute, "PyObject_GetAttrString") &&
        find(api.utf8, "PyUnicode_AsUTF8") && find(api.clear_error, "PyErr_Clear");
    return all ? &api : nullptr;
  }();
  return found;
}

class Interpreter {
 public:
  explicit Interpreter(const Api& api)
      : api_(api), state_(python::staying([&api] { return api.ensure(); })) {}
  ~Interpreter() { api_.release(state_); }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

 private:
  const Api& api_;
  int state_;
};

// Code objects that were seen. A reference to each keeps its address from being used again.
// Protected by the interpreter's lock.
std::unordered_set<void*>& kept() {
  static auto* codes = new std::unordered_set<void*>;
  return *codes;
}

std::string attribute(const Api& api, void* object, const char* name) {
  void* value = api.attribute(object, name);
  const char* text = value == nullptr ? nullptr : api.utf8(value);
  std::string result = text == nullptr ? "?" : text;
  if (text == nullptr) api.clear_error();
  if (value != nullptr) api.decrease(value);
  return result;
}

}  // namespace

bool available() { return api() != nullptr && api()->initialized() != 0; }

void gather(std::vector<Frame>& frames) {
  frames.clear();
  if (!available() || !python::may_lock()) return;
  const Api& python = *api();
  const Interpreter lock(python);
  void* frame = python.current_frame();  // Borrowed.
  if (frame == nullptr) return;
  python.increase(frame);
  while (frame != nullptr && frames.size() < kDeepest) {
    void* code = python.frame_code(frame);
    frames.emplace_back(code, python.frame_line(frame));
    if (!kept().insert(code).second) python.decrease(code);
    void* outer = python.frame_back(frame);
    python.decrease(frame);
    frame = outer;
  }
  if (frame != nullptr) python.decrease(frame);
}

std::string text(const std::vector<Frame>& frames) {
  std::string text;
  if (frames.empty() || !available()) return text;
  const Api& python = *api();
  const Interpreter lock(python);
  for (const auto& [code, line] : frames) {
    if (!text.empty()) text += '\t';
    text += attribute(python, code, "co_name") + ' ' + attribute(python, code, "co_filename") +
            ':' + std::to_string(line);
  }
  return text;
}

}  // namespace npualloc::torch_npu_plugin::python_frames
