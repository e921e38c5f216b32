// Makes virtual segments known to HCCL, for its zero-copy transfers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "pch.h"

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
  };

  std::mutex mutex_;
  std::map<int, Device> devices_;
};

HcclMirror& hccl_mirror();

}  // namespace npualloc::torch_npu_plugin
