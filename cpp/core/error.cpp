#include "npualloc/error.h"

namespace npualloc {

void throw_status(Status status, std::int32_t code) {
  const rust::String text = ffi::take_error_message();
  const std::string message(text.data(), text.size());
  switch (status) {
    case Status::OutOfMemory:
    case Status::Rejected:
      throw OutOfMemory(status, code, message, ffi::last_oom_report());
    case Status::InvalidPointer:
      throw InvalidPointer(status, code, message);
    case Status::InvalidDevice:
      throw InvalidDevice(status, code, message);
    case Status::InvalidArgument:
    case Status::ConfigValue:
    case Status::ConfigRuntime:
    case Status::ConfigNotANumber:
    case Status::ConfigOutOfRange:
      throw InvalidArgument(status, code, message);
    case Status::DriverError:
      throw DriverFailure(status, code, message);
    case Status::NotSupported:
      throw NotSupported(status, code, message);
    case Status::Damage:
      throw MemoryDamage(status, code, message);
    case Status::Ok:
    case Status::Internal:
      break;
  }
  throw InternalError(Status::Internal, code, message);
}

}  // namespace npualloc
