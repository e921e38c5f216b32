#include "frames.h"

#include <unordered_set>

#include "api.h"
#include "stack.h"

namespace npualloc::torch_npu_plugin::python_frames {

namespace {

using python::api;

// Code objects that were seen. A reference to each keeps its address from being used again.
// Protected by the interpreter's lock.
std::unordered_set<void*>& kept() {
  static auto* codes = new std::unordered_set<void*>;
  return *codes;
}

}  // namespace

bool available() { return api().complete && api().is_initialized() != 0; }

void gather(std::vector<Frame>& frames) {
  frames.clear();
  if (!python::may_lock()) return;
  const python::Locked locked;
  void* frame = api().get_frame();  // Borrowed.
  if (frame == nullptr) return;
  api().increase(frame);
  while (frame != nullptr && frames.size() < kDeepest) {
    void* code = api().frame_code(frame);
    frames.emplace_back(code, api().frame_line(frame));
    if (!kept().insert(code).second) api().decrease(code);
    void* outer = api().frame_back(frame);
    api().decrease(frame);
    frame = outer;
  }
  if (frame != nullptr) api().decrease(frame);
}

std::string text(const std::vector<Frame>& frames) {
  std::string text;
  if (frames.empty() || !available()) return text;
  const python::Locked locked;
  for (const auto& [code, line] : frames) {
    if (!text.empty()) text += '\t';
    text += python::text_of(code, "co_name") + ' ' + python::text_of(code, "co_filename") + ':' +
            std::to_string(line);
  }
  return text;
}

}  // namespace npualloc::torch_npu_plugin::python_frames
