// Recording what torch_npu waits for, from outside the wheel.
#pragma once

namespace npualloc::torch_npu_plugin {

// From now on the wheel's waits for streams and devices are told to a recording (recording.h).
void follow_waits();

}  // namespace npualloc::torch_npu_plugin
