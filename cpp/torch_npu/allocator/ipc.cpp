#include "ipc.h"

#include <dlfcn.h>

#include <array>
#include <cstring>

#include "../driver/driver.h"
#include "ipc_text.h"
#include "npu_allocator.h"

namespace npualloc::torch_npu_plugin {

namespace {

static_assert(ipc_text::kKeyBytes == c10_npu::kAclIpcHandleSize);

constexpr const char* kCutOff =
    "npualloc: a shared memory handle does not have the length that it gives";

// A function of the runtime that older ones lack.
template <typename Function>
Function runtime_function(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) {
    static void* runtime = dlopen("libascendcl.so", RTLD_NOW | RTLD_NOLOAD);
    if (runtime != nullptr) found = dlsym(runtime, name);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(found != nullptr, "Failed to find function ", name,
                              PTA_ERROR(ErrCode::NOT_FOUND));
  return reinterpret_cast<Function>(found);
}

template <typename Value>
void put(std::string& text, const Value& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(Value));
}

int current_device() {
  int device = 0;
  NPU_CHECK_ERROR(c10_npu::GetDevice(&device));
  return device;
}

// Nothing may be unmapped under running work.
void wait_for(int device) {
  const c10_npu::NPUGuard guard(static_cast<c10::DeviceIndex>(device));
  c10_npu::npuSynchronizeDevice(true);
}

void close_key(const std::string& key) {
  using Close = aclError (*)(const char*);
  NPU_CHECK_ERROR(runtime_function<Close>("aclrtIpcMemClose")(key.c_str()), "aclrtIpcMemClose");
}

// What went wrong, if anything did.
template <typename Step>
std::string failure_of(Step step) {
  try {
    step();
    return {};
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    // Of torch_npu's task queue.
    return error.what();
  }
}

// Memory that one driver call opened by its key.
class ImportedKey final : public ImportedMemory {
 public:
  ImportedKey(int device, const std::string& key) : ImportedMemory(device), key_(key) {
    using Import = aclError (*)(void**, const char*, uint64_t);
    NPU_CHECK_ERROR(runtime_function<Import>("aclrtIpcMemImportByKey")(
                        &start_, key.c_str(), ACL_RT_IPC_MEM_IMPORT_FLAG_ENABLE_PEER_ACCESS),
                    "aclrtIpcMemImportByKey");
  }

  void* start() const noexcept override { return start_; }
  void close() override { close_key(key_); }

 private:
  std::string key_;
  void* start_ = nullptr;
};

// Pages of another process under a range of this one's.
class ImportedRange final : public ImportedMemory {
 public:
  ImportedRange(int device, const ipc_text::Contents& contents)
      : ImportedMemory(device), page_size_(contents.page_size) {
    TORCH_CHECK(api().has_virtual_memory(), "npualloc: this runtime has no virtual memory",
                PTA_ERROR(ErrCode::NOT_SUPPORT));
    using Import = aclError (*)(uint64_t, int32_t, acl::MemoryHandle*);
    const auto import = runtime_function<Import>("aclrtMemImportFromShareableHandle");
    void* range = nullptr;
    NPU_CHECK_ERROR(
        api().reserve_address(&range, page_size_ * contents.shareables.size(), 0, nullptr, 1),
        "aclrtReserveMemAddress");
    start_ = static_cast<char*>(range);
    try {
      for (const std::uint64_t shareable : contents.shareables) {
        acl::MemoryHandle handle = nullptr;
        NPU_CHECK_ERROR(import(shareable, device, &handle), "aclrtMemImportFromShareableHandle");
        handles_.push_back(handle);
        NPU_CHECK_ERROR(api().map(page(mapped_), page_size_, 0, handle, 0), "aclrtMapMem");
        ++mapped_;
      }
    } catch (...) {
      // Nothing has used these pages: there is no work to wait for.
      give_back(false);
      throw;
    }
  }

  void* start() const noexcept override { return start_; }
  void close() override { give_back(true); }

 private:
  // All that the driver takes. The first failure is an exception, but only with `check`.
  void give_back(bool check) {
    acl::Code failure = acl::kSuccess;
    const char* failed = "";
    const auto done = [&](acl::Code code, const char* what) {
      if (code == acl::kSuccess || failure != acl::kSuccess) return;
      failure = code;
      failed = what;
    };
    while (mapped_ > 0) done(api().unmap(page(--mapped_)), "aclrtUnmapMem");
    for (const acl::MemoryHandle handle : handles_) {
      done(api().free_physical(handle), "aclrtFreePhysical");
    }
    handles_.clear();
    done(api().release_address(start_), "aclrtReleaseMemAddress");
    if (check) NPU_CHECK_ERROR(failure, failed);
  }

  void* page(std::size_t index) const { return start_ + index * page_size_; }

  std::size_t page_size_;
  char* start_ = nullptr;
  std::size_t mapped_ = 0;
  std::vector<acl::MemoryHandle> handles_;
};

std::unique_ptr<ImportedMemory> open_text(const std::string& text, int device) {
  ipc_text::Contents contents;
  switch (ipc_text::parse(text, contents)) {
    case ipc_text::Verdict::Key:
      return std::make_unique<ImportedKey>(device, contents.key);
    case ipc_text::Verdict::Pages:
      return std::make_unique<ImportedRange>(device, contents);
    case ipc_text::Verdict::CutOff:
      TORCH_CHECK(false, kCutOff, PTA_ERROR(ErrCode::PARAM));
    case ipc_text::Verdict::NewerVersion:
      TORCH_CHECK(
          false,
          "received sharable handle from a future version of torch that this version does not know "
          "how to handle",
          PTA_ERROR(ErrCode::NOT_SUPPORT));
    case ipc_text::Verdict::Illformed:
      break;
  }
  TORCH_CHECK(false, "Unexpected or illformed shareable handle type", PTA_ERROR(ErrCode::PARAM));
}

}  // namespace

std::string Exports::key_of(std::uintptr_t base, std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = keys_.find(base); found != keys_.end()) return found->second;
  using Export = aclError (*)(void*, size_t, char*, size_t, uint64_t);
  std::string key(ipc_text::kKeyBytes, '\0');
  NPU_CHECK_ERROR(runtime_function<Export>("aclrtIpcMemGetExportKey")(
                      reinterpret_cast<void*>(base), bytes, key.data(), ipc_text::kKeyBytes,
                      ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION),
                  "aclrtIpcMemGetExportKey");
  return keys_[base] = key;
}

std::uint64_t Exports::shareable_of(std::uintptr_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = shareables_.find(handle); found != shareables_.end()) return found->second;
  using Export = aclError (*)(acl::MemoryHandle, aclrtMemHandleType, uint64_t, uint64_t*);
  std::uint64_t shareable = 0;
  NPU_CHECK_ERROR(runtime_function<Export>("aclrtMemExportToShareableHandle")(
                      reinterpret_cast<acl::MemoryHandle>(handle), ACL_MEM_HANDLE_TYPE_NONE,
                      ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION, &shareable),
                  "aclrtMemExportToShareableHandle");
  return shareables_[handle] = shareable;
}

void Exports::close_base(std::uintptr_t base) {
  std::string key;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = keys_.find(base);
    if (found == keys_.end()) return;
    key = std::move(found->second);
    keys_.erase(found);
  }
  if (!runtime_is_up()) return;
  try {
    close_key(key);
  } catch (const c10::Error& error) {
    TORCH_WARN("npualloc: closing shared memory failed: ", error.what_without_backtrace());
  }
}

void Exports::forget_handle(std::uintptr_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  shareables_.erase(handle);
}

Exports& exports() {
  static auto* made = new Exports;
  return *made;
}

std::shared_ptr<void> Imports::open(const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = open_[text];
  if (auto opened = entry.users.lock()) return opened;
  try {
    if (entry.memory == nullptr) entry.memory = open_text(text, current_device());
    const auto user = std::make_shared<User>(*this, text, ++openings_, entry.memory->device());
    std::shared_ptr<void> opened(user, entry.memory->start());
    entry.users = opened;
    entry.opening = openings_;
    return opened;
  } catch (...) {
    if (entry.memory == nullptr) open_.erase(text);
    throw;
  }
}

// An exception out of a destructor would end the process. What the driver does not take back stays
// where it is.
void Imports::close(const std::string& text, std::uint64_t opening, int device) noexcept {
  std::string failure;
  // Without the lock: the task queue may have to run another pointer's destructor first.
  if (runtime_is_up()) failure = failure_of([&] { wait_for(device); });
  if (failure.empty()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = open_.find(text);
    // Opened again meanwhile, it is closed by those who have it now.
    if (found == open_.end() || found->second.opening != opening) return;
    if (runtime_is_up()) failure = failure_of([&] { found->second.memory->close(); });
    open_.erase(found);
  }
  // Without the lock, as a warning may need Python's, which somebody may hold who waits for ours.
  if (!failure.empty()) {
    TORCH_WARN("npualloc: closing another process's memory failed: ", failure);
  }
}

Imports& imports() {
  static auto* made = new Imports;
  return *made;
}

stock::ShareableHandle NpuAllocator::shareIpcHandle(void* ptr) {
  const auto address = reinterpret_cast<std::uintptr_t>(ptr);
  const BlockView view = core().describe_block(address);
  check(view.status, 0);
  std::string text{ipc_text::kVersion};
  const ffi::PageView pages = core().pages_under(address);
  if (pages.status == Status::Ok) {
    text.push_back(ipc_text::kByPages);
    put(text, ipc_text::PagesHeader{pages.page_size, pages.handles.size()});
    for (const std::size_t handle : pages.handles) put(text, exports().shareable_of(handle));
    return {static_cast<std::ptrdiff_t>(address - pages.addr), text};
  }
  if (pages.status != Status::NotSupported) check(pages.status, 0);
  text.push_back(ipc_text::kByKey);
  text += exports().key_of(view.base_addr, view.base_size);
  return {static_cast<std::ptrdiff_t>(address - view.base_addr), text};
}

std::shared_ptr<void> NpuAllocator::getIpcDevPtr(std::string handle) {
  return imports().open(handle);
}

}  // namespace npualloc::torch_npu_plugin
