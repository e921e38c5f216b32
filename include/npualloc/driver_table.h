/// \file
/// The driver functions an embedding C++ program hands to the allocator core.
///
/// Plain C layout: the Rust side declares the same struct in src/driver/foreign/table.rs and
/// asserts its size. Every function returns an aclError (0 = success; a negative number is a
/// failure of the embedding program's own, logged as information only), must not throw, and must
/// not call back into the allocator unless its line says so. `user` is passed through unchanged. A
/// function may be null only where its line, or that of its group, says so.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace npualloc {

/// A stream as the embedding program names it. The core only compares it and hands it back.
struct StreamToken {
  /// The stream's number or handle.
  int64_t id;
  /// Its device.
  int32_t device;
  /// 0.
  int32_t reserved;
};

/// The functions of one device runtime; see the file's description.
struct DriverTable {
  /// Passed to every function.
  void* user;

  /// Allocates device memory. `huge_1g` asks for 1 GB pages. Blocks lie at multiples of 512 bytes
  /// from its beginning: they are aligned as it is, up to 512. An address of 0 counts as no memory
  /// left.
  int32_t (*malloc)(void* user, int32_t device, size_t bytes, int32_t huge_1g, uintptr_t* addr);
  /// Gives back what `malloc` gave.
  int32_t (*free)(void* user, int32_t device, uintptr_t addr);
  /// Free and total bytes of the device, memory of other processes counted as used.
  int32_t (*memory_info)(void* user, int32_t device, size_t* free_bytes, size_t* total_bytes);

  /// Waits until the device has finished everything submitted so far, host task queue included.
  /// Called without any allocator lock; may call back into the allocator.
  int32_t (*synchronize_device)(void* user, int32_t device);

  /// Makes an event. The event functions are called without any allocator lock, except
  /// `event_query`.
  int32_t (*event_create)(void* user, int32_t device, uintptr_t* event);
  /// Destroys an event, recorded or not.
  int32_t (*event_destroy)(void* user, uintptr_t event);
  /// Records it behind everything submitted so far to `stream`. May create the underlying event on
  /// the stream's device.
  int32_t (*event_record)(void* user, uintptr_t event, StreamToken stream);
  /// Sets *completed to 1 when the device has passed it, else to 0. Called with the device lock
  /// held: must not block.
  int32_t (*event_query)(void* user, uintptr_t event, int32_t* completed);
  /// Waits until the device has passed it.
  int32_t (*event_synchronize)(void* user, uintptr_t event);

  /// Runs the registered free-memory callbacks; sets *freed when one of them released memory.
  /// Called without any allocator lock; may call back into the allocator.
  int32_t (*run_free_callbacks)(void* user, int32_t device, int32_t* freed);

  /// Asks other holders of cached device memory (operator workspaces) to give it back.
  /// Called without any allocator lock; may call back into the allocator.
  int32_t (*release_external_caches)(void* user, int32_t device);

  /// Reserves a range of addresses, where pages can be mapped from the beginning on. This function
  /// and the next five are for virtual memory: all null where the runtime has none, never some of
  /// them.
  int32_t (*reserve_address)(void* user, int32_t device, size_t bytes, uintptr_t* addr);
  /// Gives a range back; nothing is mapped in it.
  int32_t (*release_address)(void* user, int32_t device, uintptr_t addr);
  /// Makes a physical handle. `huge_1g` asks for 1 GB pages.
  int32_t (*malloc_physical)(void* user, int32_t device, size_t bytes, int32_t huge_1g,
                             uintptr_t* handle);
  /// Destroys a handle that is mapped nowhere.
  int32_t (*free_physical)(void* user, int32_t device, uintptr_t handle);
  /// Maps a whole handle of `bytes` at `addr`, readable and writable.
  int32_t (*map)(void* user, int32_t device, uintptr_t addr, size_t bytes, uintptr_t handle);
  /// Undoes the mapping that begins at `addr`.
  int32_t (*unmap)(void* user, int32_t device, uintptr_t addr);

  /// Whether the calling thread's current stream is being captured into a graph. Asked only while a
  /// capture is under way, with the device lock held: must not block. Null: never.
  int32_t (*is_capturing)(void* user, int32_t device, int32_t* capturing);
  /// The same of any stream, which another thread may be capturing. Null: never.
  int32_t (*is_stream_capturing)(void* user, StreamToken stream, int32_t* capturing);

  /// Memory of a private pool that was made with an allocator of its own; a null pointer is out of
  /// memory. Null: not supported.
  int32_t (*pool_malloc)(void* user, int32_t device, uint64_t pool_first, uint64_t pool_second,
                         size_t bytes, uintptr_t* addr);
  /// Gives back what `pool_malloc` gave.
  int32_t (*pool_free)(void* user, int32_t device, uint64_t pool_first, uint64_t pool_second,
                       uintptr_t addr);

  /// Destroys a client context (a stack) that was passed in. Called without any allocator lock; may
  /// take the Python interpreter's lock. Null: contexts are never passed.
  void (*context_drop)(void* user, uintptr_t context);

  /// Records an event behind everything submitted so far to a stream named as in an allocation.
  /// Called without any allocator lock. Null: memory of virtual segments is reused at another
  /// address only after the device has been synchronised.
  int32_t (*event_record_fence)(void* user, int32_t device, uintptr_t event, uintptr_t stream);
  /// Makes what is submitted to a stream (named as in an allocation) from now on wait, on the
  /// device, for the latest record of an event that `event_record_fence` or
  /// `event_record_for_streams` recorded. A later record changes nothing about it. Called without
  /// any allocator lock; must not wait. Null: streams never wait for each other, and memory of
  /// virtual segments moves instead.
  int32_t (*stream_wait)(void* user, int32_t device, uintptr_t stream, uintptr_t event);

  /// For the debug mode (AllocatorOptions::debug), called without any allocator lock; `fill` and
  /// `read` also once for each device that maps one handle at two addresses, to see whether both
  /// show the same memory (not while a graph is captured). One of the three null: the contents of
  /// memory are not checked, and two addresses are relied on where mapping them succeeds. Waits
  /// until the device has finished everything submitted so far, host task queue included. Fails
  /// with 207000 on a thread that others would wait for, such as the consumer of that queue.
  int32_t (*settle)(void* user, int32_t device);
  /// Sets every byte of a range, and waits for it.
  int32_t (*fill)(void* user, int32_t device, uintptr_t addr, size_t bytes, uint8_t value);
  /// Copies a range to the host, and waits for it.
  int32_t (*read)(void* user, int32_t device, uintptr_t addr, size_t bytes, uint8_t* into);
  /// Writes the calling thread's stack as text, a line for each frame, innermost first. Returns how
  /// many bytes it wrote: at most `capacity`. Null: histories have no stacks.
  size_t (*stack)(void* user, uint8_t* into, size_t capacity);
  /// Whether a line of that level is wanted: 10 each driver call, 20 the device is full, 30 a call
  /// failed, 40 a bug of the allocator. Called for each driver call that is not about events, with
  /// the device lock held at times: must not block for long. Null here or for `log`: the
  /// environment variable NPUALLOC_LOG (off, warning, info, debug) decides, and lines go to
  /// standard error.
  int32_t (*log_wanted)(void* user, int32_t level);
  /// Writes a line, which has no newline at its end and is not null-terminated.
  void (*log)(void* user, int32_t level, const char* text, size_t length);

  /// As `event_record`, for an event that `stream_wait` may be called with. Null: blocks of
  /// programs that repeat themselves do not lie where others wait for events.
  int32_t (*event_record_for_streams)(void* user, uintptr_t event, StreamToken stream);
};

}  // namespace npualloc
