#include "npualloc/allocator.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <type_traits>

#include "rust/cxx.h"

namespace npualloc {

static_assert(sizeof(DriverTable) == 32 * sizeof(void*));
static_assert(sizeof(StreamToken) == 16);
static_assert(std::is_trivially_copyable_v<DriverTable>);
static_assert(std::is_trivially_copyable_v<StreamToken>);

namespace {

void check(const Outcome& outcome) {
  if (outcome.status != Status::Ok) throw_status(outcome.status, outcome.code);
}

std::uintptr_t address(const void* ptr) { return reinterpret_cast<std::uintptr_t>(ptr); }

struct Function {
  bool is_there;
  const char* name;
};

void require(const Function& function, const std::string& what) {
  if (!function.is_there) {
    throw InvalidArgument(Status::InvalidArgument, 0, what + function.name);
  }
}

void check_table(const DriverTable& table) {
  // Functions that every device has: the core calls them without asking whether they are there.
  const Function needed[] = {
      {table.malloc != nullptr, "malloc"},
      {table.free != nullptr, "free"},
      {table.memory_info != nullptr, "memory_info"},
      {table.synchronize_device != nullptr, "synchronize_device"},
      {table.event_create != nullptr, "event_create"},
      {table.event_destroy != nullptr, "event_destroy"},
      {table.event_record != nullptr, "event_record"},
      {table.event_query != nullptr, "event_query"},
      {table.event_synchronize != nullptr, "event_synchronize"},
      {table.run_free_callbacks != nullptr, "run_free_callbacks"},
      {table.release_external_caches != nullptr, "release_external_caches"},
  };
  for (const Function& function : needed) require(function, "the driver table has no ");
  const Function virtual_memory[] = {
      {table.reserve_address != nullptr, "reserve_address"},
      {table.release_address != nullptr, "release_address"},
      {table.malloc_physical != nullptr, "malloc_physical"},
      {table.free_physical != nullptr, "free_physical"},
      {table.map != nullptr, "map"},
      {table.unmap != nullptr, "unmap"},
  };
  const auto is_there = [](const Function& function) { return function.is_there; };
  if (std::none_of(std::begin(virtual_memory), std::end(virtual_memory), is_there)) return;
  // With some of them memory would be used as if there were none, and nobody would know why.
  for (const Function& function : virtual_memory) {
    require(function, "the driver table has some functions of virtual memory, but no ");
  }
}

rust::Box<ffi::Allocator> make(const DriverTable& table, const AllocatorOptions& options) {
  check_table(table);
  check(ffi::check_config(options.common_config, options.config));
  check(ffi::check_debug(options.debug));
  return ffi::new_allocator(table, options.common_config, options.config, options.pad_bytes,
                            options.debug);
}

}  // namespace

Allocator::Allocator(const DriverTable& table, const AllocatorOptions& options)
    : core_(make(table, options)) {}

void Allocator::init(int device_count) { check(core_->init(device_count)); }

void* Allocator::allocate(int device, std::size_t bytes, std::uintptr_t stream) {
  if (bytes == 0) return nullptr;
  const AllocOutcome outcome = try_allocate(device, bytes, stream);
  if (outcome.status != Status::Ok) throw_status(outcome.status, outcome.code);
  return reinterpret_cast<void*>(outcome.addr);
}

void Allocator::deallocate(void* ptr) {
  if (ptr != nullptr) check(try_deallocate(ptr));
}

void Allocator::record_stream(void* ptr, StreamToken stream) {
  if (!core_->record_stream(address(ptr), stream)) check(ffi::last_failure());
}

void Allocator::erase_stream(void* ptr, StreamToken stream) {
  check(core_->erase_stream(address(ptr), stream));
}

BlockView Allocator::describe(const void* ptr) const {
  const BlockView view = core_->describe_block(address(ptr));
  if (view.status != Status::Ok) throw_status(view.status, 0);
  return view;
}

void* Allocator::base_allocation(const void* ptr, std::size_t* bytes) const {
  const BlockView view = describe(ptr);
  if (bytes != nullptr) *bytes = view.base_size;
  return reinterpret_cast<void*>(view.base_addr);
}

void Allocator::empty_cache(int device) { check(core_->empty_cache(device, 0)); }

CacheInfo Allocator::cache_info(int device) const {
  const CacheInfo info = core_->cache_info(device);
  if (info.status != Status::Ok) throw_status(info.status, 0);
  return info;
}

DeviceStats Allocator::stats(int device) const {
  DeviceStats stats;
  check(core_->device_stats(device, stats));
  return stats;
}

void Allocator::reset_accumulated_stats(int device) {
  check(core_->reset_accumulated_stats(device));
}

void Allocator::reset_peak_stats(int device) { check(core_->reset_peak_stats(device)); }

double Allocator::memory_fraction(int device) const {
  const ffi::FractionOutcome outcome = core_->memory_fraction(device);
  if (outcome.status != Status::Ok) throw_status(outcome.status, outcome.code);
  return outcome.value;
}

void Allocator::set_memory_fraction(int device, double fraction) {
  check(core_->set_memory_fraction(device, fraction));
}

void Allocator::apply_settings(std::string_view settings) {
  check(core_->apply_settings(rust::Str(settings.data(), settings.size())));
}

std::size_t Allocator::check_memory(int device) {
  const ffi::CountOutcome outcome = core_->check_memory(device);
  if (outcome.status != Status::Ok) throw_status(outcome.status, outcome.code);
  return outcome.value;
}

void Allocator::check_consistency() const {
  try {
    core_->check_consistency();
  } catch (const rust::Error& error) {
    throw InternalError(Status::Internal, 0, error.what());
  }
}

}  // namespace npualloc
