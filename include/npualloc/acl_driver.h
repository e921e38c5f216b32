/// \file
/// A driver table over AscendCL, for programs without torch.
///
/// The runtime is looked up when the object is made, not linked: a program that uses this header
/// builds and starts on machines without CANN. Streams are aclrtStream handles: allocate with the
/// handle as a number, and name a use with `stream_token`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "npualloc/driver_table.h"

namespace npualloc {

namespace acl {
struct Api;
}

/// The AscendCL functions of this process as a driver table.
class AclDriver {
 public:
  /// Loads the runtime library, or finds it already loaded. Throws std::runtime_error naming the
  /// library or the function that is missing. `aclInit` stays the caller's business.
  explicit AclDriver(const std::string& library = "libascendcl.so");
  ~AclDriver();
  AclDriver(const AclDriver&) = delete;
  AclDriver& operator=(const AclDriver&) = delete;

  /// Valid as long as this object lives. The virtual-memory functions are null where the runtime
  /// lacks one of them.
  DriverTable table() const noexcept;

  /// Throws std::runtime_error when the runtime can't tell.
  int device_count() const;

  /// `stream` is an aclrtStream of `device`.
  static StreamToken stream_token(void* stream, int device) noexcept {
    return {static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(stream)), device, 0};
  }

 private:
  std::unique_ptr<acl::Api> api_;
};

}  // namespace npualloc
