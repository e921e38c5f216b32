// The driver table over torch_npu and the loaded AscendCL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>

#include "../../core/acl_api.h"
#include "npualloc/driver_table.h"

namespace npualloc::torch_npu_plugin {

// A function of the table threw: the exception is kept for this thread and comes out of
// `take_foreign`. Not a code of AscendCL.
inline constexpr std::int32_t kForeignException = -70001;

// After torch_npu has finalised the runtime no driver call may be made.
bool runtime_is_up();

// The functions of the loaded libascendcl.so.
const acl::Api& api();

// Lives as long as the process.
const DriverTable& driver_table();

// For an allocator without devices: made without looking at the runtime, which may not be loaded
// yet.
DriverTable idle_driver_table();

// Takes this thread's kept exception; null when there is none.
std::exception_ptr take_foreign();

// The exception of a failed operator that torch_npu threw into a call of the core which could not
// fail, as a free: nobody was told, and torch_npu does not throw it again. Null when there is none.
std::exception_ptr take_untold();
bool has_untold();
// `tell` is called when there is one.
void call_when_untold(void (*tell)());

// Bytes added to every request: kernels may read 32 bytes past the end of a tensor, except on
// Ascend950 with CANN 9.1.0 and later. Asks the runtime, so only to be called after it was
// initialised.
std::size_t pad_bytes();

// Whether failed waits for a device are errors on this thread (otherwise warnings), while it lives.
class CheckErrorScope {
 public:
  explicit CheckErrorScope(bool check_error);
  ~CheckErrorScope();
  CheckErrorScope(const CheckErrorScope&) = delete;
  CheckErrorScope& operator=(const CheckErrorScope&) = delete;

 private:
  bool previous_;
};

}  // namespace npualloc::torch_npu_plugin
