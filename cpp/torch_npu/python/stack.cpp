#include "stack.h"

#include <unistd.h>

#include "api.h"

namespace npualloc::torch_npu_plugin::python {

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
  const Locked locked;
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
  return text;
}

}  // namespace npualloc::torch_npu_plugin::python
