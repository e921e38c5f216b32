// Everything of torch_npu that this library uses. Precompiled: include nothing of torch_npu
// elsewhere.
#pragma once

#include <c10/core/AllocatorConfig.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "torch_npu/csrc/core/npu/NPUCachingAllocator.h"
#include "torch_npu/csrc/core/npu/NPUEvent.h"
#include "torch_npu/csrc/core/npu/sys_ctrl/npu_sys_ctrl.h"
