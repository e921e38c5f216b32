// What the parts of the probe share. The C functions return 0, or 1 after an exception, which
// probe_error_* then describe; a failed call gives nothing back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "../../cpp/torch_npu/pch.h"

#define PROBE_EXPORT extern "C" __attribute__((visibility("default")))

namespace npualloc_probe {

namespace stock = c10_npu::NPUCachingAllocator;

inline stock::NPUAllocator& allocator() { return *stock::allocator.load(); }

void keep_exception();

template <typename Call>
int guarded(Call call) {
  try {
    call();
    return 0;
  } catch (...) {
    keep_exception();
    return 1;
  }
}

// Things that Python knows by number.
template <typename Thing>
class Table {
 public:
  std::int64_t add(Thing thing) {
    things_.emplace(++last_, std::move(thing));
    return last_;
  }
  Thing& at(std::int64_t number) { return things_.at(number); }
  void remove(std::int64_t number) { things_.erase(number); }

 private:
  std::map<std::int64_t, Thing> things_;
  std::int64_t last_ = 0;
};

// Lives to the end of the process, after which torch_npu could no longer free what it holds.
Table<c10::DataPtr>& blocks();

// A stream by its id.
c10_npu::NPUStream stream_of(int device, std::int64_t id);

}  // namespace npualloc_probe
