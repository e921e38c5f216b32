#include "pluggable.h"

#include <cstdlib>
#include <cstring>
#include <typeinfo>

#include "../torch_npu/allocator/npu_allocator.h"
#include "../torch_npu/wheel/wheel.h"
#include "rust/cxx.h"

namespace npualloc::torch_npu_plugin {

namespace {

// NPUPluggableAllocator takes torch_npu's own allocator out of its place, but leaves it where c10
// knows it.
stock::NPUAllocator* find_wheel() {
  auto* found = dynamic_cast<stock::NPUAllocator*>(c10::GetAllocator(c10::DeviceType::PrivateUse1));
  TORCH_CHECK(found != nullptr && found->name() == "native",
              "npualloc: torch_npu's own allocator is not there; import torch_npu first");
  // The plug-in has this class, too, in a library of its own, and the wheel's name.
  TORCH_CHECK(std::strcmp(typeid(*found).name(), typeid(NpuAllocator).name()) != 0,
              "npualloc: the plug-in serves torch_npu already; use either that or "
              "libnpualloc_pluggable.so (NPUALLOC_DISABLE=1 keeps the plug-in out)");
  return found;
}

NpuAllocator& instance() {
  static NpuAllocator* const made = [] {
    force_uncached();  // Throws for a bad value.
    meet_wheel(find_wheel());
    // Never destroyed: tensors are freed until the very end.
    auto* allocator = new NpuAllocator();
    the_allocator.store(allocator, std::memory_order_release);
    follow_wheel();
    std::atexit([] { the_allocator.load()->begin_process_exit(); });
    return allocator;
  }();
  return *made;
}

// Nobody calls npualloc_init when it was not set.
NpuAllocator& ready() {
  NpuAllocator& allocator = instance();
  if (C10_UNLIKELY(!allocator.initialized())) {
    std::uint32_t device_count = 0;
    NPU_CHECK_ERROR(aclrtGetDeviceCount(&device_count));
    allocator.init(static_cast<int>(device_count));
  }
  return allocator;
}

// torch_npu passes memory of others too, without the deleter that tells it apart.
c10::DeleterFnPtr deleter_of(const void* ptr) {
  const BlockView view = ready().core().describe_block(reinterpret_cast<std::uintptr_t>(ptr));
  return view.status == Status::InvalidPointer ? &c10::detail::deleteNothing : &delete_block;
}

// The memory at `ptr` as torch would pass it; owns nothing.
class Borrowed {
 public:
  Borrowed(void* ptr, c10::Device device) : data_(ptr, ptr, deleter_of(ptr), device) {}
  ~Borrowed() { (void)data_.release_context(); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  const c10::DataPtr& get() const { return data_; }

 private:
  c10::DataPtr data_;
};

}  // namespace

}  // namespace npualloc::torch_npu_plugin

using npualloc::torch_npu_plugin::Borrowed;
using npualloc::torch_npu_plugin::instance;
using npualloc::torch_npu_plugin::ready;

extern "C" {

void* npualloc_malloc(size_t size, int device, aclrtStream stream) {
  return ready().allocate_on_stream(device, size, stream);
}

void npualloc_free(void* ptr, size_t, int, aclrtStream) { instance().raw_delete(ptr); }

void npualloc_init(int device_count) { instance().init(device_count); }

void npualloc_reset(bool check_error) { ready().emptyCache(check_error); }

void npualloc_memory_fraction(double fraction, int device) {
  ready().setMemoryFraction(fraction, device);
}

void* npualloc_base_alloc(void* ptr, size_t* size) { return ready().getBaseAllocation(ptr, size); }

void npualloc_record_stream(void* ptr, c10_npu::NPUStream stream) {
  const Borrowed block(ptr, stream.device());
  ready().recordStream(block.get(), stream);
}

void npualloc_erase_stream(void* ptr, c10_npu::NPUStream stream) {
  const Borrowed block(ptr, stream.device());
  ready().eraseStream(block.get(), stream);
}

c10::CachingDeviceAllocator::DeviceStats npualloc_get_device_stats(c10::DeviceIndex device) {
  return ready().getDeviceStats(device);
}

void npualloc_reset_peak_status(c10::DeviceIndex device) { ready().resetPeakStats(device); }

void npualloc_begin_allocate_to_pool(int device, c10_npu::MempoolId_t mempool_id,
                                     std::function<bool(aclrtStream)> filter) {
  ready().beginAllocateToPool(static_cast<c10::DeviceIndex>(device), mempool_id, std::move(filter));
}

void npualloc_end_allocate_to_pool(int device, c10_npu::MempoolId_t mempool_id) {
  ready().endAllocateToPool(static_cast<c10::DeviceIndex>(device), mempool_id);
}

void npualloc_release_pool(int device, c10_npu::MempoolId_t mempool_id) {
  ready().releasePool(static_cast<c10::DeviceIndex>(device), mempool_id);
}

const char* npualloc_check_consistency() {
  thread_local std::string text;
  try {
    instance().core().check_consistency();
    return nullptr;
  } catch (const rust::Error& error) {
    text = error.what();
    return text.c_str();
  }
}

}  // extern "C"
