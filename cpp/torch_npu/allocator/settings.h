// The allocator's settings: from the environment at start, from torch_npu at run time.
#pragma once

#include <string>

namespace npualloc::torch_npu_plugin {

// The text of PYTORCH_NPU_ALLOC_CONF or PYTORCH_ALLOC_CONF; empty when neither is set. As it was
// when torch_npu looked at it, which happens once. Where both are set torch_npu refuses.
const std::string& environment_config();

// The text of PYTORCH_CUDA_ALLOC_CONF or else PYTORCH_HIP_ALLOC_CONF, which torch reads for every
// accelerator before those; empty when neither is set.
const std::string& environment_common_config();

// The text of NPUALLOC_DEBUG; empty when it is not set.
std::string environment_debug();

// Whether PYTORCH_NO_NPU_MEMORY_CACHING asks for no cache now; throws for a value that it can't
// have. From the first use of an NPU on it is `force_uncached` that counts.
bool environment_uncached();

// Whether torch_npu's own warnings are silent (TORCH_NPU_WARNING_DISABLE).
bool warnings_are_off();

// Whether torch_npu has a task queue for each stream (PER_STREAM_QUEUE): a stream's wait for an
// event then waits on the host until the event was recorded.
bool queue_for_each_stream();

}  // namespace npualloc::torch_npu_plugin
