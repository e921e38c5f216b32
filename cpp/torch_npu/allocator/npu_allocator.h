// npualloc as torch_npu's allocator.
#pragma once

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "../pch.h"
#include "../reports/reports.h"
#include "contexts.h"
#include "npualloc/allocator.h"
#include "pool_routes.h"

namespace npualloc::torch_npu_plugin {

namespace stock = c10_npu::NPUCachingAllocator;

// Thread-safe like the class it implements. Errors are the stock allocator's types with its texts;
// a failed call changes nothing.
class NpuAllocator final : public stock::NPUAllocator {
 public:
  // Has no devices and calls nothing of torch_npu or the runtime: both may still be loading. The
  // environment's settings are read by the first `init`.
  NpuAllocator();

  // alloc.cpp
  void init(int device_count) override;
  bool initialized() override;
  std::string name() override;
  c10::DataPtr allocate(size_t size) override;
  c10::DataPtr allocate_with_aligned(size_t size, size_t aligned_kb) const override;
  void* raw_alloc(size_t nbytes) override;
  void* raw_alloc_with_stream(size_t nbytes, aclrtStream stream) override;
  void raw_delete(void* ptr) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* dest, const void* src, std::size_t count) const override;
  void* getBaseAllocation(void* ptr, size_t* size) override;

  // streams.cpp
  using stock::NPUAllocator::recordStream;
  void recordStream(const c10::DataPtr& ptr, c10_npu::NPUStream stream) override;
  void eraseStream(const c10::DataPtr& ptr, c10_npu::NPUStream stream) override;
  void eraseStreamWithBlockPtr(void* block_ptr, c10_npu::NPUStream stream, void* work_ptr) override;
  void* getBlockPtr(const c10::DataPtr& ptr) override;
  void recordHcclWorkForBlock(void* block_ptr, void* work_ptr) override;
  void cleanEvent() override;

  // stats.cpp
  stock::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  void cacheInfo(int device, size_t* cached_and_free, size_t* largest_block) override;
  double getMemoryFraction(int device) override;
  void setMemoryFraction(double fraction, int device) override;
  void emptyCache(c10_npu::MempoolId_t mempool_id = {0, 0}) override;
  void emptyCache(bool check_error) override;
  void emptyCacheImpl(bool check_error, bool free_physical) override;
  void emptyVirtAddrCache(bool check_error) override;
  void FreeDeviceCachedMemory(int device) override;

  // pools.cpp
  void beginAllocateToPool(c10::DeviceIndex device, c10_npu::MempoolId_t mempool_id,
                           std::function<bool(aclrtStream)> filter) override;
  void endAllocateToPool(c10::DeviceIndex device, c10_npu::MempoolId_t mempool_id) override;
  void releasePool(c10::DeviceIndex device, c10_npu::MempoolId_t mempool_id) override;
  void createOrIncrefPool(c10::DeviceIndex device, c10_npu::MempoolId_t mempool_id,
                          std::shared_ptr<stock::NPUAllocator> allocator) override;
  int getPoolUseCount(c10::DeviceIndex device, c10_npu::MempoolId_t mempool_id) override;
  void setUseOnOOM(c10::DeviceIndex device, c10_npu::MempoolId_t mempool_id, bool use) override;
  void setNoSplit(c10::DeviceIndex device, c10_npu::MempoolId_t mempool_id) override;
  bool hasCapturesUnderway(c10::DeviceIndex device) override;
  void markCaptureBegin(c10::DeviceIndex device) override;
  void markCaptureEnd(c10::DeviceIndex device) override;
  bool checkPoolLiveAllocations(c10::DeviceIndex device, c10_npu::MempoolId_t mempool_id,
                                const std::unordered_set<void*>& expected) override;
  std::shared_ptr<stock::AllocatorState> getCheckpointState(c10::DeviceIndex device,
                                                            c10_npu::MempoolId_t id) override;
  stock::CheckpointDelta setCheckpointPoolState(
      c10::DeviceIndex device, std::shared_ptr<stock::AllocatorState> state) override;

  // snapshot.cpp
  stock::SnapshotInfo snapshot(c10_npu::MempoolId_t mempool_id) override;
  bool isHistoryEnabled() override;
  void recordHistory(bool enabled, stock::CreateContextFn recorder, size_t max_entries,
                     stock::RecordContext when) override;
  void attachAllocatorTraceTracker(stock::AllocatorTraceTracker tracker) override;

  // ipc.cpp
  stock::ShareableHandle shareIpcHandle(void* ptr) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;

  // hccl.cpp
  void buildServerMemMapForHccl(int device, std::shared_ptr<c10d_npu::HCCLComm> comm) override;

  // settings.cpp
  // Settings made at run time, whose keys torch_npu has let pass: which ones depends on the
  // function they came by. Throws c10::Error for bad ones and changes nothing.
  void apply_settings(const std::string& settings);

  // uce.cpp
  bool checkUceInMemPool(int device) override;
  bool checkBlockIsSafe(const c10::DataPtr& ptr) override;
  void markAllBlockUnsafe(int device) override;
  void updateBlockToSafe(const c10::DataPtr& ptr) override;

  // errors.cpp
  void attachOutOfMemoryObserver(stock::OutOfMemoryObserver observer) override;
  void attachOomRejectionObserver(stock::OomRejectionObserver observer) override;
  // Throws what belongs to a failed call, with the text of the thread's last failure. Out of memory
  // tells the observers first; no lock is held.
  [[noreturn]] void raise(Status status, std::int32_t code) const;
  // The same for the thread's last failure.
  [[noreturn]] void raise_last() const;
  void check(Status status, std::int32_t code) const {
    if (C10_UNLIKELY(status != Status::Ok)) raise(status, code);
  }
  void check(const Outcome& outcome) const { check(outcome.status, outcome.code); }

  // The core; lives as long as the process.
  const ffi::Allocator& core() const noexcept {
    return core_.load(std::memory_order_acquire)->core();
  }
  // The process ends: static destructors may free tensors after the runtime is gone.
  void begin_process_exit() const;
  // A recording has begun or ended.
  void recording_changed() { update_detailed(); }
  const PoolAllocators& pool_allocators() const noexcept { return pool_allocators_; }

  // Frees a block by its start.
  void free_block(void* ptr) const {
    if (C10_UNLIKELY(takes_long_way())) return free_detailed(ptr);
    if (C10_UNLIKELY(!core().deallocate(reinterpret_cast<std::uintptr_t>(ptr)))) raise_last();
  }

  // Memory on a device; zero bytes give null.
  void* allocate_on_stream(int device, size_t size, aclrtStream stream) const {
    return size == 0 ? nullptr : allocate_on(device, size, stream);
  }

  // The same for graph engines, which the profiler tells apart (fork/blocks.cpp).
  void* allocate_external(int device, size_t size, aclrtStream stream) const {
    return allocate_detailed(device, size, stream, true);
  }
  void free_external(void* ptr) const { free_detailed(ptr, true); }

 private:
  void* allocate_on(int device, size_t size, aclrtStream stream) const {
    if (C10_UNLIKELY(takes_long_way())) {
      return allocate_detailed(device, size, stream);
    }
    const std::uintptr_t addr =
        core().allocate(device, size, reinterpret_cast<std::uintptr_t>(stream));
    if (C10_UNLIKELY(addr == 0)) raise_last();
    return reinterpret_cast<void*>(addr);
  }
  bool takes_long_way() const noexcept {
    return detailed_.load(std::memory_order_relaxed) || reports::watched();
  }
  // The same with private pools, contexts, trackers and reports.
  void* allocate_detailed(int device, size_t size, aclrtStream stream, bool external = false) const;
  void free_detailed(void* ptr, bool external = false) const;
  void update_detailed() const;
  // Throws what a failed operator left behind that nobody was told.
  void raise_untold() const;
  // Hands new trace entries to the trackers.
  void deliver_trace() const;
  // Calls `empty` for the devices that hold memory. Failures are warnings unless `check_error`.
  void for_each_used_device(bool check_error, const std::function<Outcome(int)>& empty);
  // The two ways in which the stock allocator checks a device.
  void assert_valid_device(int device) const;
  void assert_initialized_device(int device) const;

  // Settings made at run time before the first `init`.
  std::vector<std::string> early_settings_;
  // Never destroyed: blocks are freed until the very end of the process. Set under `init_mutex_`,
  // read by any thread.
  std::atomic<npualloc::Allocator*> core_;
  std::mutex init_mutex_;
  // The process that uses the devices; 0 before the first `init`.
  std::atomic<pid_t> process_{0};

  // The collective that used a block last, by block handle. Entries of blocks that are gone are
  // dropped when the map has doubled.
  std::mutex works_mutex_;
  std::unordered_map<std::uintptr_t, void*> works_;
  std::size_t works_sweep_at_ = 1024;

  // Whether any scope, history, tracker or memory tool is active, or a failed operator is to be
  // told: without them requests take the short way.
  mutable std::atomic<bool> detailed_{false};
  // Held while it is computed and stored; what it depends on is changed before.
  mutable std::mutex detailed_mutex_;
  PoolRoutes routes_;
  PoolAllocators pool_allocators_;
  ContextRecorder contexts_;
  std::atomic<bool> history_{false};
  std::atomic<bool> tracked_{false};
  // Held while trackers run, so that each sees the entries in order. Recursive: a tracker may
  // allocate.
  mutable std::recursive_mutex trackers_mutex_;
  std::vector<stock::AllocatorTraceTracker> trackers_;

  mutable std::mutex observers_mutex_;
  std::vector<stock::OutOfMemoryObserver> oom_observers_;
  std::vector<stock::OomRejectionObserver> rejection_observers_;
};

// The registered allocator, or null before registration.
extern std::atomic<NpuAllocator*> the_allocator;

// Frees a block of the registered allocator: the deleter of every DataPtr it makes.
void delete_block(void* ptr);

// What the timing wrapper (wheel/timing.cpp) passes calls on to; any other allocator itself.
stock::NPUAllocator* without_timing(stock::NPUAllocator* allocator);

// Whether PYTORCH_NO_NPU_MEMORY_CACHING is set. Throws c10::Error for a value other than 0 or 1.
bool force_uncached();

// From now on emptying the cache concerns the device: it has been used, also if nothing is held.
void note_used(int device);

}  // namespace npualloc::torch_npu_plugin
