// Makes virtual segments known to HCCL, for its zero-copy transfers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "../pch.h"

namespace npualloc::torch_npu_plugin {

// The reserved ranges and mapped pages of each device, repeated to the communicator once a device
// has one. Thread-safe. Failures of HCCL are c10::Error.
class HcclMirror {
 public:
  // To be called after the driver reserved, mapped or unmapped, and before it releases: a range
  // that it has back may be somebody else's. `released` returns the bytes that were reserved, 0 for
  // a range that is not known.
  void reserved(int device, std::uintptr_t range, std::size_t bytes);
  std::size_t released(int device, std::uintptr_t range);
  void mapped(int device, std::uintptr_t page, std::size_t bytes, std::uintptr_t handle);
  void unmapped(int device, std::uintptr_t page);

  // Whether the physical memory is mapped somewhere.
  bool is_mapped(int device, std::uintptr_t handle);

  // Tells the communicator about everything there is, and from then on about every change. A device
  // can have one communicator.
  void attach(int device, std::shared_ptr<c10d_npu::HCCLComm> comm);

 private:
  struct Page {
    std::size_t bytes;
    std::uintptr_t handle;
  };
  struct Device {
    // HCCL's handle; null without a communicator.
    void* comm = nullptr;
    std::shared_ptr<c10d_npu::HCCLComm> owner;
    std::map<std::uintptr_t, std::size_t> ranges;
    std::map<std::uintptr_t, Page> pages;
    // Handles of `pages`, and at how many addresses each is.
    std::unordered_map<std::uintptr_t, int> handles;
  };

  std::mutex mutex_;
  std::map<int, Device> devices_;
};

HcclMirror& hccl_mirror();

// Whether TORCH_HCCL_ZERO_COPY announces a communicator that is to know the memory. HCCL exports a
// physical handle once, so that then none may be mapped at two addresses.
bool is_zero_copy_wanted();

}  // namespace npualloc::torch_npu_plugin
