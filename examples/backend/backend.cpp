// What torch needs of a PrivateUse1 backend. The memory is npualloc's part; the rest is the least
// that lets ordinary programs run: every operator without a kernel here runs on the CPU.
#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <npualloc/c10_allocator.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "device.h"

namespace toy {

namespace {

constexpr auto kToy = c10::DeviceType::PrivateUse1;
constexpr std::size_t kCapacity = std::size_t{256} << 20;

// The calling thread's stream; 0 is the default one.
thread_local c10::StreamId current_stream = 0;

// ---- The allocator
// ----------------------------------------------------------------------------------

class AllocatorHooks final : public npualloc::c10_backend::Hooks {
 public:
  c10::DeviceIndex current_device() override { return 0; }
  std::uintptr_t current_stream(c10::DeviceIndex) override {
    return static_cast<std::uintptr_t>(toy::current_stream);
  }
  std::optional<std::uintptr_t> number(const c10::Stream& stream) override {
    return static_cast<std::uintptr_t>(stream.id());
  }
  void copy(void* dest, const void* src, std::size_t count) override {
    std::memcpy(dest, src, count);
  }
};

// Never destroyed: tensors are freed until the very end of a process.
npualloc::c10_backend::DeviceAllocator& allocator() {
  static auto* allocator = [] {
    const char* config = std::getenv("PYTORCH_ALLOC_CONF");
    auto* made = new npualloc::c10_backend::DeviceAllocator(
        *new AllocatorHooks, (new Device(kCapacity))->table(), {config == nullptr ? "" : config});
    made->init(1);
    return made;
  }();
  return *allocator;
}

// ---- Devices and streams
// ----------------------------------------------------------------------------

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kToy; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {kToy, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, current_stream);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    static std::atomic<c10::StreamId> last{0};
    return c10::Stream(c10::Stream::UNSAFE, device, ++last);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream old = getStream(stream.device());
    current_stream = stream.id();
    return old;
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(c10::DeviceIndex) const override {}
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
};

// torch.ops.toy.init(). A function, so that bad settings are an exception in Python: nothing can
// catch what a library's constructors throw.
void init() {
  c10::SetAllocator(kToy, &allocator());
  at::RegisterPrivateUse1HooksInterface(new Hooks);
}

TORCH_LIBRARY(toy, m) { m.def("init", init); }

// ---- Operators
// --------------------------------------------------------------------------------------

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(type));
}

// The same elements as the CPU sees them: this device's memory is the process's own.
at::Tensor on_cpu(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  if (to.numel() != 0) on_cpu(to).copy_(on_cpu(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

// Tensor.record_stream: memory freed later is not given out again before the stream has passed.
void record_stream(at::Tensor& tensor, c10::Stream stream) {
  allocator().recordStream(tensor.storage().data_ptr(), stream);
}

at::Scalar item(const at::Tensor& tensor) { return on_cpu(tensor).item(); }

const at::Tensor& resize(const at::Tensor& tensor, at::IntArrayRef size,
                         std::optional<at::MemoryFormat>) {
  const auto bytes = at::detail::computeStorageNbytesContiguous(size, tensor.itemsize());
  auto& storage = tensor.storage();
  if (bytes > storage.nbytes()) {
    auto memory = allocator().allocate(bytes);
    allocator().copy_data(memory.get(), storage.data(), storage.nbytes());
    storage.unsafeGetStorageImpl()->set_data_ptr(std::move(memory));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return tensor;
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", item);
  m.impl("record_stream", record_stream);
  m.impl("resize_", resize);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace
}  // namespace toy
