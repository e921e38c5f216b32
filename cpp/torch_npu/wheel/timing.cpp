// An allocator that passes everything on to another one and measures allocations and frees.
#include <chrono>

#include "../allocator/npu_allocator.h"
#include "plugin.h"

namespace npualloc::torch_npu_plugin {

namespace {

using c10::DataPtr;
using c10::DeviceIndex;
using c10_npu::MempoolId_t;
using c10_npu::NPUStream;

std::atomic<std::uint64_t> call_count{0};
std::atomic<std::uint64_t> total_ns{0};
// The wrapped allocator's deleter. One is enough: an allocator that returns another one sometimes
// gets it back unwrapped.
std::atomic<c10::DeleterFnPtr> inner_deleter{nullptr};

class Timer {
 public:
  Timer() : start_(std::chrono::steady_clock::now()) {}
  ~Timer() {
    const auto elapsed = std::chrono::steady_clock::now() - start_;
    call_count.fetch_add(1, std::memory_order_relaxed);
    total_ns.fetch_add(static_cast<std::uint64_t>(
                           std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count()),
                       std::memory_order_relaxed);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  std::chrono::steady_clock::time_point start_;
};

void delete_timed(void* context) {
  const auto deleter = inner_deleter.load(std::memory_order_acquire);
  if (context == nullptr) return deleter(context);
  const Timer timer;
  deleter(context);
}

DataPtr wrap(DataPtr ptr) {
  const c10::DeleterFnPtr deleter = ptr.get_deleter();
  if (deleter == nullptr || deleter == &c10::detail::deleteNothing) return ptr;
  c10::DeleterFnPtr expected = nullptr;
  if (inner_deleter.compare_exchange_strong(expected, deleter) || expected == deleter) {
    (void)ptr.compare_exchange_deleter(deleter, &delete_timed);
  }
  return ptr;
}

// The same memory with the wrapped allocator's deleter, by which that one knows its own. Owns
// nothing.
class Unwrapped {
 public:
  explicit Unwrapped(const DataPtr& ptr)
      : ptr_(ptr.get(), ptr.get_context(),
             ptr.get_deleter() == &delete_timed ? inner_deleter.load(std::memory_order_acquire)
                                                : ptr.get_deleter(),
             ptr.device()) {}
  ~Unwrapped() { ptr_.release_context(); }
  Unwrapped(const Unwrapped&) = delete;
  Unwrapped& operator=(const Unwrapped&) = delete;

  const DataPtr& get() const noexcept { return ptr_; }

 private:
  DataPtr ptr_;
};

class TimedAllocator final : public stock::NPUAllocator {
 public:
  explicit TimedAllocator(stock::NPUAllocator* inner) : inner_(inner) {}

  stock::NPUAllocator* inner() const noexcept { return inner_; }

  // Timed.
  DataPtr allocate(size_t size) override {
    return wrap([&] {
      const Timer timer;
      return inner_->allocate(size);
    }());
  }
  DataPtr allocate_with_aligned(size_t size, size_t aligned) const override {
    return wrap([&] {
      const Timer timer;
      return inner_->allocate_with_aligned(size, aligned);
    }());
  }
  void* raw_alloc(size_t nbytes) override {
    const Timer timer;
    return inner_->raw_alloc(nbytes);
  }
  void* raw_alloc_with_stream(size_t nbytes, aclrtStream stream) override {
    const Timer timer;
    return inner_->raw_alloc_with_stream(nbytes, stream);
  }
  void raw_delete(void* ptr) override {
    const Timer timer;
    inner_->raw_delete(ptr);
  }

  // By deleter.
  c10::DeleterFnPtr raw_deleter() const override {
    const c10::DeleterFnPtr deleter = inner_->raw_deleter();
    const c10::DeleterFnPtr known = inner_deleter.load(std::memory_order_acquire);
    return known == nullptr || known == deleter ? &delete_timed : deleter;
  }
  using stock::NPUAllocator::recordStream;
  void recordStream(const DataPtr& ptr, NPUStream stream) override {
    inner_->recordStream(Unwrapped(ptr).get(), stream);
  }
  void eraseStream(const DataPtr& ptr, NPUStream stream) override {
    inner_->eraseStream(Unwrapped(ptr).get(), stream);
  }
  void* getBlockPtr(const DataPtr& ptr) override {
    return inner_->getBlockPtr(Unwrapped(ptr).get());
  }
  bool checkBlockIsSafe(const DataPtr& ptr) override {
    return inner_->checkBlockIsSafe(Unwrapped(ptr).get());
  }
  void updateBlockToSafe(const DataPtr& ptr) override {
    inner_->updateBlockToSafe(Unwrapped(ptr).get());
  }
  stock::CheckpointDelta setCheckpointPoolState(
      DeviceIndex device, std::shared_ptr<stock::AllocatorState> state) override {
    stock::CheckpointDelta delta = inner_->setCheckpointPoolState(device, std::move(state));
    for (DataPtr& ptr : delta.dataptrs_allocd) ptr = wrap(std::move(ptr));
    return delta;
  }

  // Passed on as they are.
  bool is_simple_data_ptr(const DataPtr& ptr) const override {
    return inner_->is_simple_data_ptr(ptr);
  }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    inner_->copy_data(dest, src, count);
  }
  void init(int device_count) override { inner_->init(device_count); }
  bool initialized() override { return inner_->initialized(); }
  std::string name() override { return inner_->name(); }
  double getMemoryFraction(int device) override { return inner_->getMemoryFraction(device); }
  void setMemoryFraction(double fraction, int device) override {
    inner_->setMemoryFraction(fraction, device);
  }
  void emptyCache(MempoolId_t id = {0, 0}) override { inner_->emptyCache(id); }
  void emptyCache(bool check_error) override { inner_->emptyCache(check_error); }
  void emptyCacheImpl(bool check_error, bool free_physical) override {
    inner_->emptyCacheImpl(check_error, free_physical);
  }
  void emptyVirtAddrCache(bool check_error) override { inner_->emptyVirtAddrCache(check_error); }
  void cacheInfo(int device, size_t* cached_and_free, size_t* largest_block) override {
    inner_->cacheInfo(device, cached_and_free, largest_block);
  }
  void* getBaseAllocation(void* ptr, size_t* size) override {
    return inner_->getBaseAllocation(ptr, size);
  }
  void eraseStreamWithBlockPtr(void* block, NPUStream stream, void* work) override {
    inner_->eraseStreamWithBlockPtr(block, stream, work);
  }
  void recordHcclWorkForBlock(void* block, void* work) override {
    inner_->recordHcclWorkForBlock(block, work);
  }
  stock::DeviceStats getDeviceStats(DeviceIndex device) override {
    return inner_->getDeviceStats(device);
  }
  void resetAccumulatedStats(DeviceIndex device) override { inner_->resetAccumulatedStats(device); }
  void resetPeakStats(DeviceIndex device) override { inner_->resetPeakStats(device); }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    return inner_->getMemoryInfo(device);
  }
  stock::SnapshotInfo snapshot(MempoolId_t id) override { return inner_->snapshot(id); }
  void beginAllocateToPool(DeviceIndex device, MempoolId_t id,
                           std::function<bool(aclrtStream)> filter) override {
    inner_->beginAllocateToPool(device, id, std::move(filter));
  }
  void endAllocateToPool(DeviceIndex device, MempoolId_t id) override {
    inner_->endAllocateToPool(device, id);
  }
  void releasePool(DeviceIndex device, MempoolId_t id) override { inner_->releasePool(device, id); }
  void createOrIncrefPool(DeviceIndex device, MempoolId_t id,
                          std::shared_ptr<stock::NPUAllocator> allocator) override {
    inner_->createOrIncrefPool(device, id, std::move(allocator));
  }
  int getPoolUseCount(DeviceIndex device, MempoolId_t id) override {
    return inner_->getPoolUseCount(device, id);
  }
  void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use) override {
    inner_->setUseOnOOM(device, id, use);
  }
  void setNoSplit(DeviceIndex device, MempoolId_t id) override { inner_->setNoSplit(device, id); }
  bool hasCapturesUnderway(DeviceIndex device) override {
    return inner_->hasCapturesUnderway(device);
  }
  void markCaptureBegin(DeviceIndex device) override { inner_->markCaptureBegin(device); }
  void markCaptureEnd(DeviceIndex device) override { inner_->markCaptureEnd(device); }
  void FreeDeviceCachedMemory(int device) override { inner_->FreeDeviceCachedMemory(device); }
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id,
                                const std::unordered_set<void*>& expected) override {
    return inner_->checkPoolLiveAllocations(device, id, expected);
  }
  stock::ShareableHandle shareIpcHandle(void* ptr) override { return inner_->shareIpcHandle(ptr); }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return inner_->getIpcDevPtr(std::move(handle));
  }
  bool isHistoryEnabled() override { return inner_->isHistoryEnabled(); }
  void recordHistory(bool enabled, stock::CreateContextFn recorder, size_t max_entries,
                     stock::RecordContext when) override {
    inner_->recordHistory(enabled, recorder, max_entries, when);
  }
  void attachOutOfMemoryObserver(stock::OutOfMemoryObserver observer) override {
    inner_->attachOutOfMemoryObserver(std::move(observer));
  }
  void attachOomRejectionObserver(stock::OomRejectionObserver observer) override {
    inner_->attachOomRejectionObserver(std::move(observer));
  }
  bool checkUceInMemPool(int device) override { return inner_->checkUceInMemPool(device); }
  void markAllBlockUnsafe(int device) override { inner_->markAllBlockUnsafe(device); }
  void cleanEvent() override { inner_->cleanEvent(); }
  void buildServerMemMapForHccl(int device, std::shared_ptr<c10d_npu::HCCLComm> comm) override {
    inner_->buildServerMemMapForHccl(device, std::move(comm));
  }
  std::shared_ptr<stock::AllocatorState> getCheckpointState(DeviceIndex device,
                                                            MempoolId_t id) override {
    return inner_->getCheckpointState(device, id);
  }
  void attachAllocatorTraceTracker(stock::AllocatorTraceTracker tracker) override {
    inner_->attachAllocatorTraceTracker(std::move(tracker));
  }

 private:
  stock::NPUAllocator* const inner_;
};

std::atomic<TimedAllocator*> the_wrapper{nullptr};

}  // namespace

stock::NPUAllocator* without_timing(stock::NPUAllocator* allocator) {
  const TimedAllocator* wrapper = the_wrapper.load();
  return wrapper != nullptr && allocator == wrapper ? wrapper->inner() : allocator;
}

}  // namespace npualloc::torch_npu_plugin

using namespace npualloc::torch_npu_plugin;

extern "C" {

int npualloc_timing_wrap() {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (the_wrapper.load() != nullptr) return 1;
  // Lives as long as the process, like what it wraps.
  auto* wrapper = new TimedAllocator(stock::allocator.load());
  the_wrapper.store(wrapper);
  stock::allocator.store(wrapper);
  c10::SetAllocator(c10::DeviceType::PrivateUse1, wrapper);
  return 0;
}

void npualloc_timing_read(uint64_t* calls, uint64_t* ns) {
  if (calls != nullptr) *calls = call_count.load(std::memory_order_relaxed);
  if (ns != nullptr) *ns = total_ns.load(std::memory_order_relaxed);
}

}  // extern "C"
