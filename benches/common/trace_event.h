// One event of a trace, as the readers of trace files hand it over: 16 bytes, little-endian.
#pragma once

#include <cstdint>

namespace bench {

struct TraceEvent {
  std::uint64_t bytes;
  std::uint32_t id;
  std::uint16_t stream;
  // 'a', 'f', 'u', 's' or 'e' as in the text; 't': a request that failed in the recorded run, which
  // the program caught; its block, if there is one, is freed at once. 'r': what the stream has been
  // given so far will be waited for, `bytes` times; 'w': that is the case now. Both have its number
  // for an id, counted from 0 in the order of 'r'.
  std::uint16_t kind;
};
static_assert(sizeof(TraceEvent) == 16);

// The stream of an 's' that concerns all of them.
constexpr std::uint16_t kEveryStream = 0xFFFF;

}  // namespace bench
