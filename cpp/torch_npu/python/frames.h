// The calling thread's Python stack, without linking Python: a process may have none.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace npualloc::torch_npu_plugin::python_frames {

// A frame: its code object, kept alive for good, and the line.
using Frame = std::pair<void*, int>;

// Of a stack, the innermost frames up to this number.
constexpr std::size_t kDeepest = 64;

// Whether the process has a Python of which frames can be had (3.9 or later).
bool available();

// The innermost frame first; empty in a thread that runs no Python, and where there is none. Takes
// the interpreter's lock. `frames` is for reuse.
void gather(std::vector<Frame>& frames);

// "function file:line" for each frame, separated by tabs.
std::string text(const std::vector<Frame>& frames);

}  // namespace npualloc::torch_npu_plugin::python_frames
