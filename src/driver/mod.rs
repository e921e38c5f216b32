//! The contract with the device runtime, and its backends: `foreign` (functions supplied by the C++
//! side), `fake` (unit tests and benchmarks, with a fault plan). Depends on ids only.

mod contents;
pub mod fake;
#[allow(unsafe_code)]
pub mod foreign;
mod virtual_memory;

pub use contents::Contents;
pub use virtual_memory::VirtualMemory;

use crate::ids::{DeviceId, MempoolId, StreamKey};

/// The driver's "device memory exhausted" (`ACL_ERROR_RT_MEMORY_ALLOCATION`): the only code that means
/// out of memory; every other code is a failure.
pub const OUT_OF_MEMORY_CODE: i32 = 207_001;

/// The driver's "not supported" (`ACL_ERROR_RT_FEATURE_NOT_SUPPORT`).
pub const UNSUPPORTED_CODE: i32 = 207_000;

/// A driver call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed, error code is {code}")]
pub struct DriverError {
    /// Which call.
    pub call: &'static str,
    /// The runtime's error code, unchanged.
    pub code: i32,
}

impl DriverError {
    /// Whether the device has no room (as opposed to a failure).
    pub fn is_out_of_memory(&self) -> bool {
        self.code == OUT_OF_MEMORY_CODE
    }

    /// Whether a call of [`VirtualMemory`] failed.
    pub fn is_of_mapping(&self) -> bool {
        let calls = [
            "reserve_address",
            "release_address",
            "malloc_physical",
            "free_physical",
            "map",
            "unmap",
        ];
        calls.contains(&self.call)
    }
}

/// A stream as the client names it when it records a use: passed through to the event functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct StreamToken {
    /// The client's stream id.
    pub id: i64,
    /// The device the stream belongs to.
    pub device: i32,
    /// Always 0; keeps the layout explicit.
    pub reserved: i32,
}

/// An event of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventHandle(pub usize);

/// Physical memory of the runtime, without an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PhysicalHandle(pub usize);

/// Device memory as the runtime reports it, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Not allocated by anybody.
    pub free: usize,
    /// The device's capacity.
    pub total: usize,
}

/// Result of a driver call.
pub type DriverResult<T> = Result<T, DriverError>;

/// What the allocator needs from a device runtime. Thread-safe. Unless a method says otherwise it is
/// called without any allocator lock held and may block.
pub trait Driver: Send + Sync {
    /// Allocates device memory, 512-byte aligned or better.
    fn malloc(&self, device: DeviceId, bytes: usize, huge_1g: bool) -> DriverResult<usize>;
    /// Frees what `malloc` returned. Takes effect at once, even under running work.
    fn free(&self, device: DeviceId, addr: usize) -> DriverResult<()>;
    /// Free and total memory of the device.
    fn memory_info(&self, device: DeviceId) -> DriverResult<MemoryInfo>;
    /// Waits for everything submitted to the device.
    fn synchronize_device(&self, device: DeviceId) -> DriverResult<()>;
    /// Makes an event.
    fn event_create(&self, device: DeviceId) -> DriverResult<EventHandle>;
    /// Destroys an event.
    fn event_destroy(&self, event: EventHandle) -> DriverResult<()>;
    /// Records the event behind everything submitted to the stream so far.
    fn event_record(&self, event: EventHandle, stream: StreamToken) -> DriverResult<()>;
    /// The same with an event that streams may be made to wait for. Fails as unsupported where there are none.
    fn event_record_for_streams(&self, event: EventHandle, stream: StreamToken)
    -> DriverResult<()>;
    /// Records the event behind everything submitted so far to a stream named as in an allocation. Fails
    /// as unsupported where the stream can't be found by that name.
    fn event_record_fence(
        &self,
        device: DeviceId,
        event: EventHandle,
        stream: StreamKey,
    ) -> DriverResult<()>;
    /// Whether streams can wait for each other: see [`Self::stream_wait`].
    fn orders_streams(&self) -> bool;
    /// Makes work submitted to a stream from now on wait, on the device, for the last record of an event that
    /// [`Self::event_record_fence`] or [`Self::event_record_for_streams`] recorded. Fails as unsupported where the stream can't be found.
    fn stream_wait(
        &self,
        device: DeviceId,
        stream: StreamKey,
        event: EventHandle,
    ) -> DriverResult<()>;
    /// Whether the last record has completed. Called under the device lock: must not block.
    fn event_query(&self, event: EventHandle) -> DriverResult<bool>;
    /// Waits for the last record.
    fn event_synchronize(&self, event: EventHandle) -> DriverResult<()>;
    /// The virtual memory functions, where the runtime has them.
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory>;
    /// Runs the client's free-memory callbacks; true when one of them freed something.
    fn run_free_callbacks(&self, device: DeviceId) -> DriverResult<bool>;
    /// Whether the calling thread's current stream is being captured into a graph. Asked only while a
    /// capture is under way on the device, under the device lock: must not block.
    fn is_capturing(&self, device: DeviceId) -> bool;
    /// The same of any stream, which another thread may be capturing.
    fn is_stream_capturing(&self, stream: StreamToken) -> bool;
    /// Allocates for a private pool that has an allocator of its own.
    fn pool_malloc(&self, device: DeviceId, pool: MempoolId, bytes: usize) -> DriverResult<usize>;
    /// Frees what `pool_malloc` returned.
    fn pool_free(&self, device: DeviceId, pool: MempoolId, addr: usize) -> DriverResult<()>;
    /// Asks other holders of cached device memory to return it.
    fn release_external_caches(&self, device: DeviceId) -> DriverResult<()>;
    /// Access to what memory holds, where there is one. Asked by the debug mode, and once for each device to see whether two
    /// addresses show the same memory.
    fn contents(&self) -> Option<&dyn Contents> {
        None
    }
    /// Tells people of a bug of the allocator.
    fn report_bug(&self, _text: &str) {}
    /// The calling thread's stack as text, innermost first. Only the debug mode asks.
    fn stack(&self) -> Option<String> {
        None
    }
}
