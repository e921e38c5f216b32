// Events, waits and captures: all that goes by the order of streams.
#include <memory>
#include <optional>
#include <string>

#include "../allocator/recording.h"
#include "../allocator/settings.h"
#include "calls.h"
#include "stream_names.h"

namespace npualloc::torch_npu_plugin {

namespace {

// torch_npu makes the runtime's event when it is recorded first, so what it is for can be said
// until then: fences are events that streams can wait for.
class Event {
 public:
  c10_npu::NPUEvent* operator->() { return event_.get(); }

  // Goes through torch_npu's task queue, behind the kernels it must follow.
  void record(const c10_npu::NPUStream& stream) {
    stream_ = stream;
    event_->record(stream);
  }
  void record_as_fence(const c10_npu::NPUStream& stream) {
    if (!is_fence_) event_ = std::make_unique<c10_npu::NPUEvent>(ACL_EVENT_SYNC);
    is_fence_ = true;
    record(stream);
  }

  // What NPUEvent::synchronize does, but for this: once an operator has failed, the task queue
  // drops what comes, records too, and that function would wait for one for ever.
  void wait() {
    if (!event_->isCreated()) return;
    // Who takes tasks out of the queue can't wait for its end.
    if (is_queue_thread()) return event_->synchronize();
    const DeviceScope scope(event_->device_index());
    (void)stream_->stream();  // Once the queue is empty. Throws what went wrong in it.
    NPU_CHECK_ERROR(api().synchronize_event(event_->event()), "aclrtSynchronizeEvent");
    // It was dropped: nothing else tells of its stream.
    if (!event_->query()) c10_npu::npuSynchronizeDevice(false);
  }

 private:
  std::optional<c10_npu::NPUStream> stream_;
  std::unique_ptr<c10_npu::NPUEvent> event_ =
      std::make_unique<c10_npu::NPUEvent>(ACL_EVENT_CAPTURE_STREAM_PROGRESS);
  bool is_fence_ = false;
};

// Without the backtrace that c10::Error adds.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

Event& event_of(std::uintptr_t event) { return *reinterpret_cast<Event*>(event); }

std::int32_t synchronize_device_fn(void*, std::int32_t device) {
  return while_up([&] {
    const DeviceScope scope(device);
    const recording::OwnWait own;
    c10_npu::npuSynchronizeDevice(is_error_checked());
    return acl::kSuccess;
  });
}

std::int32_t event_create_fn(void*, std::int32_t, std::uintptr_t* event) {
  return guarded([&] {
    *event = reinterpret_cast<std::uintptr_t>(new Event);
    return acl::kSuccess;
  });
}

std::int32_t event_destroy_fn(void*, std::uintptr_t event) {
  return guarded([&] {
    delete &event_of(event);
    return acl::kSuccess;
  });
}

c10_npu::NPUStream stream_of(StreamToken token) {
  const c10::Device device(c10::DeviceType::PrivateUse1, index(token.device));
  const c10::Stream stream(c10::Stream::UNSAFE, device, token.id);
  return c10_npu::NPUStream(c10_npu::NPUStream::UNCHECKED, stream);
}

std::int32_t event_record_fn(void*, std::uintptr_t event, StreamToken stream) {
  return while_up([&] {
    const ContextScope scope(stream.device);
    event_of(event).record(stream_of(stream));
    return acl::kSuccess;
  });
}

std::int32_t event_record_for_streams_fn(void*, std::uintptr_t event, StreamToken stream) {
  return while_up([&] {
    const ContextScope scope(stream.device);
    event_of(event).record_as_fence(stream_of(stream));
    return acl::kSuccess;
  });
}

// `kUnsupported` where torch_npu refuses the call's stream as one that it did not make.
template <typename Call>
std::int32_t on_named(Call call) {
  try {
    call();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (text.find("External NPU stream") == std::string::npos) throw;
    return acl::kUnsupported;
  }
  return acl::kSuccess;
}

// Streams that torch_npu did not make have no names here; for those the core waits for the device.
std::int32_t event_record_fence_fn(void*, std::int32_t device, std::uintptr_t event,
                                   std::uintptr_t stream) {
  return while_up([&] {
    const ContextScope scope(device);
    const auto named = stream_names().find(index(device), stream);
    if (!named.has_value()) return acl::kUnsupported;
    return on_named([&] { event_of(event).record_as_fence(*named); });
  });
}

// Goes through the task queue too, so that it comes before the kernels that are submitted next.
// With a queue for each stream it would run later than it is asked for, maybe after the event was
// recorded once more, and is waited for on the host instead.
std::int32_t stream_wait_fn(void*, std::int32_t device, std::uintptr_t stream,
                            std::uintptr_t event) {
  return while_up([&] {
    const ContextScope scope(device);
    if (queue_for_each_stream()) return acl::kUnsupported;
    const auto named = stream_names().find(index(device), stream);
    if (!named.has_value()) return acl::kUnsupported;
    return on_named([&] { event_of(event)->block(*named); });
  });
}

std::int32_t event_query_fn(void*, std::uintptr_t event, std::int32_t* completed) {
  return guarded([&] {
    *completed = !runtime_is_up() || event_of(event)->query();
    return acl::kSuccess;
  });
}

std::int32_t event_synchronize_fn(void*, std::uintptr_t event) {
  return while_up([&] {
    // A queue's thread may need the interpreter's lock before it comes to the event: CANN compiles
    // operators of the old path in Python. torch_npu lets it go for such waits of its own, too.
    const python::Released released;
    try {
      event_of(event).wait();
    } catch (const std::exception& error) {
      // A device that was stopped completes nothing; what it did is over all the same.
      if (is_error_checked()) throw;
      keep_untold(std::current_exception());
      TORCH_WARN("npualloc: waiting for an event failed: ", first_line(error.what()));
    }
    return acl::kSuccess;
  });
}

// Asked with the device lock held: everything here only reads.
template <typename Find>
std::int32_t is_captured(Find find, std::int32_t* capturing) {
  *capturing = 0;
  return guarded([&] {
    const c10_npu::NPUStream stream = find();
    *capturing =
        c10_npu::captureStatusMayInitCtx(stream.stream(false)) != c10_npu::CaptureStatus::None;
    return acl::kSuccess;
  });
}

std::int32_t is_capturing_fn(void*, std::int32_t device, std::int32_t* capturing) {
  return is_captured([&] { return c10_npu::getCurrentNPUStream(index(device)); }, capturing);
}

std::int32_t is_stream_capturing_fn(void*, StreamToken token, std::int32_t* capturing) {
  return is_captured([&] { return stream_of(token); }, capturing);
}

}  // namespace

void add_wait_functions(DriverTable& table) {
  table.synchronize_device = &synchronize_device_fn;
  table.event_create = &event_create_fn;
  table.event_destroy = &event_destroy_fn;
  table.event_record = &event_record_fn;
  table.event_record_for_streams = &event_record_for_streams_fn;
  table.event_record_fence = &event_record_fence_fn;
  if (api().stream_wait_event != nullptr) table.stream_wait = &stream_wait_fn;
  table.event_query = &event_query_fn;
  table.event_synchronize = &event_synchronize_fn;
  table.is_capturing = &is_capturing_fn;
  table.is_stream_capturing = &is_stream_capturing_fn;
}

}  // namespace npualloc::torch_npu_plugin
