// Pools, captures, checkpoints; an allocator of a pool's own.
#include "probe.h"

using namespace npualloc_probe;

namespace {

Table<std::shared_ptr<stock::AllocatorState>>& states() {
  static auto* made = new Table<std::shared_ptr<stock::AllocatorState>>;
  return *made;
}

// A state that no allocator made.
struct ForeignState final : stock::AllocatorState {};

c10::DeviceIndex index(int device) { return static_cast<c10::DeviceIndex>(device); }

std::atomic<int> own_allocs{0};
std::atomic<int> own_frees{0};

// Of allocators of pools: how many were made, and which of them are gone.
std::atomic<int> pools_own{0};
std::mutex pools_own_mutex;
std::vector<int> pools_own_gone;

}  // namespace

PROBE_EXPORT int probe_pool_create(int device, uint64_t first, uint64_t second) {
  return guarded([&] { allocator().createOrIncrefPool(index(device), {first, second}, nullptr); });
}
// Its memory comes from the allocator in place itself: what it has outside of the pool.
PROBE_EXPORT int probe_pool_create_own(int device, uint64_t first, uint64_t second) {
  return guarded([&] {
    const std::shared_ptr<stock::NPUAllocator> same(
        &allocator(), [number = ++pools_own](stock::NPUAllocator*) {
          const std::lock_guard<std::mutex> lock(pools_own_mutex);
          pools_own_gone.push_back(number);
        });
    allocator().createOrIncrefPool(index(device), {first, second}, same);
  });
}
// As there; when it goes it has the cache emptied.
PROBE_EXPORT int probe_pool_create_busy(int device, uint64_t first, uint64_t second) {
  return guarded([&] {
    const std::shared_ptr<stock::NPUAllocator> same(
        &allocator(), [](stock::NPUAllocator*) { allocator().emptyCache(true); });
    allocator().createOrIncrefPool(index(device), {first, second}, same);
  });
}
// Of the allocators that `pool_create_own` made, numbered from 1: how many are gone, and the last.
PROBE_EXPORT int probe_pool_own_gone(int* count, int* last) {
  return guarded([&] {
    const std::lock_guard<std::mutex> lock(pools_own_mutex);
    *count = static_cast<int>(pools_own_gone.size());
    *last = pools_own_gone.empty() ? 0 : pools_own_gone.back();
  });
}
// Requests of one stream, or of all with 0, go to the pool.
PROBE_EXPORT int probe_pool_begin(int device, uint64_t first, uint64_t second, uint64_t stream) {
  return guarded([&] {
    allocator().beginAllocateToPool(index(device), {first, second}, [stream](aclrtStream target) {
      return stream == 0 || reinterpret_cast<uint64_t>(target) == stream;
    });
  });
}
PROBE_EXPORT int probe_pool_end(int device, uint64_t first, uint64_t second) {
  return guarded([&] { allocator().endAllocateToPool(index(device), {first, second}); });
}
PROBE_EXPORT int probe_pool_release(int device, uint64_t first, uint64_t second) {
  return guarded([&] { allocator().releasePool(index(device), {first, second}); });
}
PROBE_EXPORT int probe_pool_use_count(int device, uint64_t first, uint64_t second, int* count) {
  return guarded([&] { *count = allocator().getPoolUseCount(index(device), {first, second}); });
}
PROBE_EXPORT int probe_pool_use_on_oom(int device, uint64_t first, uint64_t second, int use) {
  return guarded([&] { allocator().setUseOnOOM(index(device), {first, second}, use != 0); });
}
PROBE_EXPORT int probe_pool_no_split(int device, uint64_t first, uint64_t second) {
  return guarded([&] { allocator().setNoSplit(index(device), {first, second}); });
}
PROBE_EXPORT int probe_pool_live(int device, uint64_t first, uint64_t second, const uint64_t* addrs,
                                 size_t count, int* live) {
  return guarded([&] {
    std::unordered_set<void*> expected;
    for (size_t i = 0; i < count; ++i) expected.insert(reinterpret_cast<void*>(addrs[i]));
    *live = allocator().checkPoolLiveAllocations(index(device), {first, second}, expected);
  });
}

PROBE_EXPORT int probe_capture_begin(int device) {
  return guarded([&] { allocator().markCaptureBegin(index(device)); });
}
PROBE_EXPORT int probe_capture_end(int device) {
  return guarded([&] { allocator().markCaptureEnd(index(device)); });
}
PROBE_EXPORT int probe_captures_underway(int device, int* yes) {
  return guarded([&] { *yes = allocator().hasCapturesUnderway(index(device)); });
}

PROBE_EXPORT int probe_checkpoint(int device, uint64_t first, uint64_t second, int64_t* state) {
  return guarded([&] {
    *state = states().add(allocator().getCheckpointState(index(device), {first, second}));
  });
}
PROBE_EXPORT int probe_checkpoint_foreign(int64_t* state) {
  return guarded([&] { *state = states().add(std::make_shared<ForeignState>()); });
}
// How many blocks were freed; the blocks that live again are added and their numbers are written.
PROBE_EXPORT int probe_restore(int device, int64_t state, size_t* freed, int64_t* made,
                               size_t* count) {
  return guarded([&] {
    auto delta = allocator().setCheckpointPoolState(index(device), states().at(state));
    *freed = delta.ptrs_freed.size();
    size_t n = 0;
    for (auto& ptr : delta.dataptrs_allocd) {
      if (n < *count) made[n++] = blocks().add(std::move(ptr));
    }
    *count = n;
  });
}

// For NPUPluggableAllocator: an allocator over the runtime that counts.
PROBE_EXPORT void* probe_own_malloc(size_t bytes, int, aclrtStream) {
  void* ptr = nullptr;
  if (aclrtMalloc(&ptr, bytes, ACL_MEM_MALLOC_HUGE_FIRST) != ACL_ERROR_NONE) return nullptr;
  ++own_allocs;
  return ptr;
}
PROBE_EXPORT void probe_own_free(void* ptr, size_t, int, aclrtStream) {
  aclrtFree(ptr);
  ++own_frees;
}
PROBE_EXPORT void probe_own_counts(int* allocs, int* frees) {
  *allocs = own_allocs;
  *frees = own_frees;
}
