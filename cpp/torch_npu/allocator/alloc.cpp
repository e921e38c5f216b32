// Allocation and deletion: the hot path.
#include <unistd.h>

#include "../../c10/convert.h"
#include "../driver/driver.h"
#include "../host.h"
#include "../reports/mstx.h"
#include "npu_allocator.h"
#include "recording.h"
#include "settings.h"

namespace npualloc::torch_npu_plugin {

std::atomic<NpuAllocator*> the_allocator{nullptr};

namespace {

using c10_backend::kOneExaByte;

[[noreturn, gnu::cold, gnu::noinline]] void refuse_too_large() {
  if (host::log_wanted(host::kLogError)) host::log(host::kLogError, c10_backend::kTooLarge);
  c10_backend::throw_too_large();
}

// Asks again and throws what is wrong: the macro's code is not for the hot path.
[[gnu::cold, gnu::noinline]] int checked_current_device() {
  int device = 0;
  NPU_CHECK_ERROR(c10_npu::GetDevice(&device));
  return device;
}

int current_device() {
  int device = 0;
  const bool found = c10_npu::GetDevice(&device) == ACL_ERROR_NONE;
  return C10_LIKELY(found) ? device : checked_current_device();
}

// The current stream's handle, without waiting for the host task queue. Makes the device current on
// this thread first.
aclrtStream current_stream(int device) {
  return c10_npu::getCurrentNPUStream(static_cast<c10::DeviceIndex>(device)).stream(false);
}

void delete_uncached(void* ptr) {
  // Memory went with the runtime when torch_npu finalised it.
  if (!runtime_is_up()) return;
  c10_npu::npuSynchronizeDevice(false);
  NPU_CHECK_ERROR(api().free(ptr), "aclrtFree");
}

// Whether this request bypasses the cache. During capture memory always comes from the cache.
bool bypasses_cache(int device) {
  if (C10_LIKELY(!force_uncached())) return false;
  current_stream(device);  // The capture status needs a context.
  return c10_npu::currentStreamCaptureStatusMayInitCtx() == c10_npu::CaptureStatus::None;
}

void* allocate_uncached(int device, std::size_t bytes) {
  note_used(device);
  void* ptr = nullptr;
  NPU_CHECK_ERROR(api().malloc_align32(&ptr, bytes + pad_bytes(), acl::MallocPolicy::HugeFirst),
                  "aclrtMallocAlign32");
  return ptr;
}

}  // namespace

void delete_block(void* ptr) {
  if (ptr == nullptr) return;
  the_allocator.load(std::memory_order_acquire)->free_block(ptr);
}

NpuAllocator::NpuAllocator() : core_(new npualloc::Allocator(idle_driver_table())) {
  // Its allocations take the long way then, which tells the program.
  call_when_untold([] {
    NpuAllocator* allocator = the_allocator.load(std::memory_order_acquire);
    if (allocator != nullptr) allocator->update_detailed();
  });
}

void NpuAllocator::init(int device_count) {
  // torch's own variables first: what it refuses must fail with torch's own error.
  (void)c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments();
  host::read_settings();
  force_uncached();  // As the environment is now.
  const std::lock_guard<std::mutex> lock(init_mutex_);
  if (device_count > 0 && core().device_count() == 0) {
    // Nothing was allocated yet. As with the stock allocator, bad settings are the first use's
    // error.
    const std::string& config = environment_config();
    const std::string& common = environment_common_config();
    check(ffi::check_config(common, config));
    const std::string debug = environment_debug();
    check(ffi::check_debug(debug));
    auto made = std::make_unique<npualloc::Allocator>(
        driver_table(), AllocatorOptions{config, pad_bytes(), debug, common});
    for (const std::string& settings : early_settings_) {
      check(made->core().apply_any_settings(rust::Str(settings.data(), settings.size())));
    }
    core_.store(made.release(), std::memory_order_release);
    early_settings_.clear();
    process_.store(getpid());
    update_detailed();
  }
  check(core().init(device_count));
  // Devices are attached to, not the core: trackers may have come before them.
  if (tracked_.load()) core().attach_trace_trackers();
  host::init(device_count);
  if (device_count > 0) recording::follow_environment(*this);
}

void* NpuAllocator::allocate_detailed(int device, size_t size, aclrtStream stream,
                                      bool external) const {
  raise_untold();
  reports::Allocation report(core(), device, external);
  const ffi::MempoolId pool = routes_.find(device, stream);
  const std::uintptr_t context = contexts_.gather(stock::RecordContext::STATE);
  const AllocOutcome outcome =
      core().allocate_in(device, size, reinterpret_cast<std::uintptr_t>(stream), pool, context);
  if (outcome.status == Status::Ok) deliver_trace();
  if (recording::on() && (outcome.status == Status::Ok || outcome.status == Status::OutOfMemory)) {
    recording::allocated(core(), device, outcome.addr, size, stream, pool);
  }
  check(outcome.status, outcome.code);
  report.done(outcome.addr);
  return reinterpret_cast<void*>(outcome.addr);
}

void NpuAllocator::free_detailed(void* ptr, bool external) const {
  const reports::Free report(core(), reinterpret_cast<std::uintptr_t>(ptr), external);
  const std::uintptr_t context = contexts_.gather(stock::RecordContext::ALL);
  if (recording::on()) recording::freed(reinterpret_cast<std::uintptr_t>(ptr));
  const Outcome outcome = core().deallocate_with(reinterpret_cast<std::uintptr_t>(ptr), context);
  if (outcome.status == Status::Ok) deliver_trace();
  check(outcome);
  report.done();
}

void NpuAllocator::update_detailed() const {
  // Whoever computes it last sees what all before it changed, and is the last to store it.
  const std::lock_guard<std::mutex> lock(detailed_mutex_);
  detailed_.store(!routes_.empty() || history_.load() || tracked_.load() || mstx::enabled() ||
                      recording::on() || has_untold(),
                  std::memory_order_release);
}

void NpuAllocator::raise_untold() const {
  if (C10_LIKELY(!has_untold())) return;
  const std::exception_ptr thrown = take_untold();
  update_detailed();
  if (thrown != nullptr) std::rethrow_exception(thrown);
}

void NpuAllocator::begin_process_exit() const {
  // A forked child has the core's locks and orders, but not the threads that see to them.
  const pid_t process = process_.load();
  if (process == 0 || process == getpid()) core().begin_process_exit();
}

bool NpuAllocator::initialized() { return core().device_count() > 0; }

// What the stock allocator calls itself: scripts compare with it.
std::string NpuAllocator::name() { return "native"; }

c10::DataPtr NpuAllocator::allocate(size_t size) {
  if (C10_UNLIKELY(size >= kOneExaByte)) refuse_too_large();
  const int device = current_device();
  const c10::Device where(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device));
  if (C10_UNLIKELY(size == 0)) return {nullptr, nullptr, &delete_block, where};
  if (C10_UNLIKELY(bypasses_cache(device))) {
    void* ptr = allocate_uncached(device, size);
    return {ptr, ptr, &delete_uncached, where};
  }
  void* ptr = allocate_on(device, size, current_stream(device));
  return {ptr, ptr, &delete_block, where};
}

c10::DataPtr NpuAllocator::allocate_with_aligned(size_t size, size_t aligned_kb) const {
  if (C10_UNLIKELY(size >= kOneExaByte || aligned_kb >= kOneExaByte / 1024)) refuse_too_large();
  const std::size_t alignment = aligned_kb * 1024;
  const int device = current_device();
  const c10::Device where(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device));
  if (size == 0) return {nullptr, nullptr, &delete_block, where};
  const bool uncached = bypasses_cache(device);
  void* base = uncached ? allocate_uncached(device, size + alignment)
                        : allocate_on(device, size + alignment, current_stream(device));
  const auto start = reinterpret_cast<std::uintptr_t>(base);
  const std::uintptr_t aligned =
      alignment == 0 ? start : (start + alignment - 1) / alignment * alignment;
  return {reinterpret_cast<void*>(aligned), base, uncached ? &delete_uncached : &delete_block,
          where};
}

void* NpuAllocator::raw_alloc(size_t nbytes) {
  if (nbytes == 0) return nullptr;
  const int device = current_device();
  return allocate_on(device, nbytes, current_stream(device));
}

void* NpuAllocator::raw_alloc_with_stream(size_t nbytes, aclrtStream stream) {
  if (nbytes == 0) return nullptr;
  return allocate_on(current_device(), nbytes, stream);
}

void NpuAllocator::raw_delete(void* ptr) { delete_block(ptr); }

c10::DeleterFnPtr NpuAllocator::raw_deleter() const {
  return force_uncached() && bypasses_cache(current_device()) ? &delete_uncached : &delete_block;
}

void NpuAllocator::copy_data(void* dest, const void* src, std::size_t count) const {
  NPU_CHECK_ERROR(aclrtMemcpy(dest, count, src, count, ACL_MEMCPY_DEVICE_TO_DEVICE));
}

void* NpuAllocator::getBaseAllocation(void* ptr, size_t* size) {
  const BlockView view = core().describe_block(reinterpret_cast<std::uintptr_t>(ptr));
  check(view.status, 0);
  if (size != nullptr) *size = view.base_size;
  return reinterpret_cast<void*>(view.base_addr);
}

void NpuAllocator::assert_valid_device(int device) const {
  TORCH_CHECK(0 <= device && device < core().device_count(), "Invalid device argument ", device,
              ": did you call init?", PTA_ERROR(ErrCode::PARAM));
}

void NpuAllocator::assert_initialized_device(int device) const {
  // Named as in the stock allocator, whose text contains the condition.
  const struct {
    int count;
    int size() const { return count; }
  } device_allocator{core().device_count()};
  TORCH_INTERNAL_ASSERT(0 <= device && device < device_allocator.size(),
                        "Allocator not initialized for device ", device, ": did you call init?",
                        PTA_ERROR(ErrCode::PARAM));
}

}  // namespace npualloc::torch_npu_plugin
