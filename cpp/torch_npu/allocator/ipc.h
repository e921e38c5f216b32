// Sharing memory with other processes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "../pch.h"

namespace npualloc::torch_npu_plugin {

// What was exported: driver allocations by key, physical handles by shareable handle. Exporting one
// twice fails, so each is kept until the memory goes back to the driver. Thread-safe.
class Exports {
 public:
  // The key of the driver allocation at `base`. Throws c10::Error when the driver refuses.
  std::string key_of(std::uintptr_t base, std::size_t bytes);
  // The shareable handle of a physical handle.
  std::uint64_t shareable_of(std::uintptr_t handle);

  // To be called before the driver takes the memory back. No other process can open the key from
  // then on. Where the driver refuses to close it there is a warning: the memory goes all the same.
  void close_base(std::uintptr_t base);
  void forget_handle(std::uintptr_t handle);

 private:
  std::mutex mutex_;
  std::unordered_map<std::uintptr_t, std::string> keys_;
  std::unordered_map<std::uintptr_t, std::uint64_t> shareables_;
};

Exports& exports();

// Memory of another process that is mapped here.
class ImportedMemory {
 public:
  explicit ImportedMemory(int device) : device_(device) {}
  ImportedMemory(const ImportedMemory&) = delete;
  ImportedMemory& operator=(const ImportedMemory&) = delete;
  virtual ~ImportedMemory() = default;

  int device() const noexcept { return device_; }
  virtual void* start() const noexcept = 0;
  // To be called once, when no work uses it. Throws c10::Error when the driver refuses.
  virtual void close() = 0;

 private:
  int device_;
};

// Memory of other processes that is open here, by the text it came with. Thread-safe.
class Imports {
 public:
  // The memory of that text, opened on the current device when it is not open yet; closed when the
  // last copy of the pointer goes. Throws c10::Error for a text that can't be read or a driver that
  // refuses.
  std::shared_ptr<void> open(const std::string& text);

 private:
  struct Entry {
    std::weak_ptr<void> users;
    // Open until the device was waited for after its last user; a user that comes in between has
    // it.
    std::unique_ptr<ImportedMemory> memory;
    // When `users` were made: whose end closes it.
    std::uint64_t opening = 0;
  };

  // What all copies of a pointer share.
  struct User {
    User(Imports& imports, std::string text, std::uint64_t opening, int device)
        : imports(imports), text(std::move(text)), opening(opening), device(device) {}
    User(const User&) = delete;
    User& operator=(const User&) = delete;
    ~User() { imports.close(text, opening, device); }

    Imports& imports;
    std::string text;
    std::uint64_t opening;
    int device;
  };

  void close(const std::string& text, std::uint64_t opening, int device) noexcept;

  std::mutex mutex_;
  std::unordered_map<std::string, Entry> open_;
  std::uint64_t openings_ = 0;
};

Imports& imports();

}  // namespace npualloc::torch_npu_plugin
