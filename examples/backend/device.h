// The device of this example, in place of a vendor's runtime: memory of this process, of which it
// claims to have a fixed amount, and streams on which work is done at once.
#pragma once

#include <npualloc/driver_table.h>

#include <cstddef>
#include <map>
#include <mutex>

namespace toy {

class Device {
 public:
  explicit Device(std::size_t capacity) : capacity_(capacity) {}

  // The functions npualloc calls. The object must live as long as they are called.
  npualloc::DriverTable table();

 private:
  // The functions of the table, in its order; each gives an error code, 0 for success.
  static int malloc(void* self, int, std::size_t bytes, int, std::uintptr_t* addr);
  static int free(void* self, int, std::uintptr_t addr);
  static int memory_info(void* self, int, std::size_t* free_bytes, std::size_t* total_bytes);
  static int reserve_address(void* self, int, std::size_t bytes, std::uintptr_t* addr);
  static int release_address(void* self, int, std::uintptr_t addr);
  static int malloc_physical(void* self, int, std::size_t bytes, int, std::uintptr_t* handle);
  static int free_physical(void* self, int, std::uintptr_t handle);
  static int map(void* self, int, std::uintptr_t addr, std::size_t bytes, std::uintptr_t handle);
  static int unmap(void* self, int, std::uintptr_t addr);

  bool take(std::size_t bytes);

  std::mutex mutex_;
  std::size_t capacity_;
  std::size_t used_ = 0;
  // Bytes by address or handle.
  std::map<std::uintptr_t, std::size_t> plain_, reserved_, physical_, mapped_;
};

}  // namespace toy
