#include "stream_names.h"

namespace npualloc::torch_npu_plugin {

namespace {

std::uintptr_t handle_of(const c10_npu::NPUStream& stream) {
  return reinterpret_cast<std::uintptr_t>(stream.stream(false));
}

// A stream that the program made and gave torch_npu (`ExternalStream`), and that no event can be
// recorded on. The wheel hides what NPUStreamUtils.h declares to tell them apart; that tests this
// bit, in torch_npu 2.13 and 2.14.
bool is_external(const c10_npu::NPUStream& stream) {
  constexpr c10::StreamId kExternal = 1 << 30;
  return (stream.id() & kExternal) != 0;
}

// The stream of that number, if torch_npu has made it: others have no handle, or are refused.
std::optional<c10_npu::NPUStream> made_stream(c10::DeviceIndex device, c10::StreamId number) {
  const c10::Device on(c10::DeviceType::PrivateUse1, device);
  const c10_npu::NPUStream stream(c10_npu::NPUStream::UNCHECKED,
                                  c10::Stream(c10::Stream::UNSAFE, on, number));
  try {
    if (handle_of(stream) != 0) return stream;
  } catch (const c10::Error&) {
  }
  return std::nullopt;
}

}  // namespace

std::optional<c10_npu::NPUStream> StreamNames::find(c10::DeviceIndex device,
                                                    std::uintptr_t handle) {
  const c10_npu::NPUStream current = c10_npu::getCurrentNPUStream(device);
  // An external stream may be another name for one of torch_npu's.
  if (!is_external(current) && handle_of(current) == handle) return current;
  const std::lock_guard<std::mutex> lock(mutex_);
  auto found = streams_.find(handle);
  // A device that was restarted has other streams, some of which may have got handles of older
  // ones.
  if (found == streams_.end() || handle_of(found->second) != handle) {
    streams_.erase(handle);
    note_pools(device);
    found = streams_.find(handle);
  }
  if (found == streams_.end() || found->second.device_index() != device) return std::nullopt;
  return found->second;
}

void StreamNames::note_pools(c10::DeviceIndex device) {
  // A stream's number is its kind (default, secondary, synchronous launches, normal, high
  // priority), then its place among those, in pools of 32, or of 8 with STREAMS_PER_DEVICE=8.
  // torch_npu does not check the place of every kind.
  for (const int pool : {32, 8}) {
    const int places[] = {1, 1, 4, pool, pool};
    for (int kind = 0; kind < 5; ++kind) {
      for (int place = 0; place < places[kind]; ++place) {
        const auto stream = made_stream(device, kind * pool + place);
        if (!stream.has_value()) break;
        streams_.insert_or_assign(handle_of(*stream), *stream);
      }
    }
  }
}

// Leaked: events are recorded until the process ends.
StreamNames& stream_names() {
  static auto* const names = new StreamNames;
  return *names;
}

}  // namespace npualloc::torch_npu_plugin
