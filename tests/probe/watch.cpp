// History, observers, trackers, free-memory callbacks.
#include "probe.h"

using namespace npualloc_probe;

namespace {

// What observers and trackers were told, a line each.
std::mutex log_mutex;
std::string log_text;

template <typename... Parts>
void log(const Parts&... parts) {
  std::ostringstream line;
  ((line << parts << ' '), ...);
  const std::lock_guard<std::mutex> lock(log_mutex);
  log_text += line.str() + '\n';
}

// Blocks that the callback gives back when memory runs out.
std::vector<int64_t> hoard;

class FreeHoard final : public c10_npu::NPUCachingAllocator::FreeMemoryCallback {
 public:
  bool Execute() override {
    log("callback", hoard.size());
    const bool any = !hoard.empty();
    for (const int64_t block : std::exchange(hoard, {})) blocks().remove(block);
    return any;
  }
};

std::shared_ptr<c10::GatheredContext> context() {
  struct Context final : c10::GatheredContext {};
  return std::make_shared<Context>();
}

}  // namespace

PROBE_EXPORT int probe_log(char* text, size_t size) {
  const std::lock_guard<std::mutex> lock(log_mutex);
  snprintf(text, size, "%s", log_text.c_str());
  return log_text.size() < size ? 0 : 1;
}

PROBE_EXPORT int probe_observe_oom() {
  return guarded([] {
    allocator().attachOutOfMemoryObserver(
        [](int64_t device, int64_t size, int64_t total, int64_t free) {
          log("oom", device, size, total, free);
        });
  });
}
// An observer that allocates: possible only when no lock is held.
PROBE_EXPORT int probe_observe_oom_allocating(size_t bytes) {
  return guarded([&] {
    allocator().attachOutOfMemoryObserver([bytes](int64_t, int64_t, int64_t, int64_t) {
      void* ptr = allocator().raw_alloc(bytes);
      log("allocated", ptr != nullptr);
      allocator().raw_delete(ptr);
    });
  });
}
PROBE_EXPORT int probe_observe_rejection() {
  return guarded([] {
    allocator().attachOomRejectionObserver(
        [](int64_t device, size_t size, size_t allocated, size_t total) {
          log("rejected", device, size, allocated, total);
        });
  });
}
PROBE_EXPORT int probe_observe_rejection_failing() {
  return guarded([] {
    allocator().attachOomRejectionObserver([](int64_t, size_t, size_t, size_t) {
      log("failing");
      throw std::runtime_error("the observer's own failure");
    });
  });
}
PROBE_EXPORT int probe_track() {
  return guarded([] {
    allocator().attachAllocatorTraceTracker([](const stock::TraceEntry& entry) {
      log("trace", static_cast<int>(entry.action_), entry.device_, entry.size_,
          entry.mempool_.first != 0 || entry.mempool_.second != 0);
    });
  });
}
// A tracker that fails when it is told of running out of memory.
PROBE_EXPORT int probe_track_failing() {
  return guarded([] {
    allocator().attachAllocatorTraceTracker([](const stock::TraceEntry& entry) {
      if (entry.action_ != stock::TraceEntry::Action::OOM) return;
      log("failing");
      throw std::runtime_error("the tracker's own failure");
    });
  });
}
PROBE_EXPORT int probe_register_callback() {
  return guarded([] {
    stock::FreeNPUMemoryCallbacksRegistry()->Register("npualloc_probe",
                                                      [] { return std::make_unique<FreeHoard>(); });
  });
}
PROBE_EXPORT void probe_hoard(int64_t block) { hoard.push_back(block); }

PROBE_EXPORT int probe_record_history(int enabled, int with_recorder, size_t entries, int when) {
  return guarded([&] {
    allocator().recordHistory(enabled != 0, with_recorder != 0 ? &context : nullptr, entries,
                              static_cast<stock::RecordContext>(when));
  });
}
PROBE_EXPORT int probe_history_enabled(int* yes) {
  return guarded([&] { *yes = allocator().isHistoryEnabled(); });
}
// Number of trace entries of a device, and of those and of blocks that have a context.
PROBE_EXPORT int probe_snapshot(int device, uint64_t first, uint64_t second, size_t* segments,
                                size_t* entries, size_t* with_context, size_t* blocks_with) {
  return guarded([&] {
    const auto info = allocator().snapshot({first, second});
    *segments = info.segments.size();
    *entries = *with_context = *blocks_with = 0;
    for (const auto& entry : info.device_traces.at(device)) {
      ++*entries;
      *with_context += entry.context_ != nullptr;
    }
    for (const auto& segment : info.segments) {
      for (const auto& block : segment.blocks) {
        *blocks_with += block.context_when_allocated != nullptr;
      }
    }
  });
}
