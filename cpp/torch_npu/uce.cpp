// Uncorrectable memory errors: blocks hit by one are marked until they are written anew.
#include <dlfcn.h>

#include "npu_allocator.h"

namespace npualloc::torch_npu_plugin {

namespace {

// The ranges that the runtime reports as bad.
std::vector<aclrtMemUceInfo> bad_ranges(int device) {
  using Function = aclError (*)(int32_t, aclrtMemUceInfo*, size_t, size_t*);
  static const auto function = reinterpret_cast<Function>([] {
    void* runtime = dlopen("libascendcl.so", RTLD_NOW | RTLD_NOLOAD);
    return runtime == nullptr ? nullptr : dlsym(runtime, "aclrtGetMemUceInfo");
  }());
  TORCH_CHECK_NOT_IMPLEMENTED(function != nullptr, "Failed to find function aclrtGetMemUceInfo",
                              PTA_ERROR(ErrCode::NOT_FOUND));
  std::vector<aclrtMemUceInfo> ranges(MAX_MEM_UCE_INFO_ARRAY_SIZE);
  size_t count = 0;
  NPU_CHECK_ERROR_WITHOUT_UCE(function(device, ranges.data(), ranges.size(), &count),
                              "aclrtGetMemUceInfo");
  ranges.resize(std::min(count, ranges.size()));
  return ranges;
}

// Torch_npu checks copies for damaged blocks only while its own flag is set, which can be set from
// Python alone. Its recovery functions are called from Python, so the interpreter is there.
void set_unsafe_flag() {
  using Ensure = int (*)();
  using Release = void (*)(int);
  using Run = int (*)(const char*);
  const auto ensure = reinterpret_cast<Ensure>(dlsym(RTLD_DEFAULT, "PyGILState_Ensure"));
  const auto release = reinterpret_cast<Release>(dlsym(RTLD_DEFAULT, "PyGILState_Release"));
  const auto run = reinterpret_cast<Run>(dlsym(RTLD_DEFAULT, "PyRun_SimpleString"));
  if (ensure == nullptr || release == nullptr || run == nullptr) return;
  const int state = ensure();
  const int failed = run("import torch_npu\ntorch_npu._C._set_npu_data_unsafe_flag(True)\n");
  release(state);
  TORCH_CHECK(failed == 0, "npualloc: torch_npu's unsafe flag could not be set",
              PTA_ERROR(ErrCode::INTERNAL));
}

}  // namespace

bool NpuAllocator::checkUceInMemPool(int device) {
  assert_valid_device(device);
  bool found = false;
  for (const aclrtMemUceInfo& range : bad_ranges(device)) {
    const ffi::CountOutcome outcome =
        core().mark_damaged(device, reinterpret_cast<std::uintptr_t>(range.addr), range.len);
    check(outcome.status, outcome.code);
    found = found || outcome.value > 0;
  }
  if (found) set_unsafe_flag();
  return found;
}

bool NpuAllocator::checkBlockIsSafe(const c10::DataPtr& ptr) {
  if (ptr.get() == nullptr || ptr.get_deleter() != &delete_block) return true;
  const ffi::CountOutcome outcome =
      core().is_damaged(reinterpret_cast<std::uintptr_t>(ptr.get_context()));
  TORCH_INTERNAL_ASSERT(outcome.status != Status::InvalidPointer, "No allocated block can be found",
                        PTA_ERROR(ErrCode::NOT_FOUND));
  check(outcome.status, outcome.code);
  return outcome.value == 0;
}

void NpuAllocator::markAllBlockUnsafe(int device) {
  assert_valid_device(device);
  check(core().mark_all_damaged(device));
}

void NpuAllocator::updateBlockToSafe(const c10::DataPtr& ptr) {
  if (ptr.get() == nullptr || ptr.get_deleter() != &delete_block) return;
  const Outcome outcome = core().clear_damaged(reinterpret_cast<std::uintptr_t>(ptr.get_context()));
  TORCH_INTERNAL_ASSERT(outcome.status != Status::InvalidPointer, "No allocated block can be found",
                        PTA_ERROR(ErrCode::NOT_FOUND));
  check(outcome);
}

}  // namespace npualloc::torch_npu_plugin
