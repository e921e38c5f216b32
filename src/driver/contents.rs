//! Access to what memory holds: for the debug mode, and for the try of two addresses.

use super::DriverResult;
use crate::ids::DeviceId;

/// Access to what device memory holds. Thread-safe; may block; called without any allocator lock.
pub trait Contents: Send + Sync {
    /// Waits until the device has done everything submitted to it. Unsupported where the calling thread is
    /// one that others would wait for, such as the consumer of a task queue.
    fn settle(&self, device: DeviceId) -> DriverResult<()>;
    /// Sets every byte of a range, and waits for it.
    fn fill(&self, device: DeviceId, addr: usize, bytes: usize, value: u8) -> DriverResult<()>;
    /// Copies a range to the host, and waits for it.
    fn read(&self, device: DeviceId, addr: usize, into: &mut [u8]) -> DriverResult<()>;
}
