/// \file
/// What calls of npualloc::Allocator throw. Torch-free.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "npualloc/bridge.h"

namespace npualloc {

using ffi::OomReport;
using ffi::Status;

/// Base of everything the allocator throws; the text names what was wrong.
class Error : public std::runtime_error {
 public:
  /// `message` is what `what()` gives.
  Error(Status status, std::int32_t code, const std::string& message)
      : std::runtime_error(message), status_(status), code_(code) {}

  /// Which failure; never Ok.
  Status status() const noexcept { return status_; }
  /// The device runtime's error code; for a configuration string see `Status::ConfigValue`; else 0.
  std::int32_t code() const noexcept { return code_; }

 private:
  Status status_;
  std::int32_t code_;
};

/// No room, after everything reclaimable went back; or refused by policy (`status() == Rejected`).
class OutOfMemory : public Error {
 public:
  /// `message` is what `what()` gives.
  OutOfMemory(Status status, std::int32_t code, const std::string& message, OomReport report)
      : Error(status, code, message), report_(report) {}

  /// The sizes at the moment of the failure.
  const OomReport& report() const noexcept { return report_; }

 private:
  OomReport report_;
};

/// The address is not a live allocation of this allocator.
class InvalidPointer : public Error {
  using Error::Error;
};

/// Device index out of range, or `init` was not called for it.
class InvalidDevice : public Error {
  using Error::Error;
};

/// An argument or a configuration string (`status()` says of which kind) that can't be accepted;
/// nothing was changed.
class InvalidArgument : public Error {
  using Error::Error;
};

/// A call of the device runtime failed with `code()`.
class DriverFailure : public Error {
  using Error::Error;
};

/// The runtime or the driver table has no function for it.
class NotSupported : public Error {
  using Error::Error;
};

/// The debug mode found that memory was written past the end of a block, or after it was freed. The
/// text names the blocks.
class MemoryDamage : public Error {
  using Error::Error;
};

/// A bug of the allocator, caught at the boundary, or one that has poisoned the device before: its
/// text says so.
class InternalError : public Error {
  using Error::Error;
};

/// Throws the class that belongs to `status`, with the text of the calling thread's last failure.
/// `status` must not be Ok.
[[noreturn]] void throw_status(Status status, std::int32_t code);

}  // namespace npualloc
