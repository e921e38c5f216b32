//! Physical and virtual memory as separate things.

use super::{DriverResult, PhysicalHandle};
use crate::ids::DeviceId;

/// The virtual memory functions of a runtime. Thread-safe; may block; called without any allocator lock.
pub trait VirtualMemory: Send + Sync {
    /// Reserves a range of addresses; no memory yet.
    fn reserve_address(&self, device: DeviceId, bytes: usize) -> DriverResult<usize>;
    /// Gives a reservation back; nothing may be mapped in it.
    fn release_address(&self, device: DeviceId, addr: usize) -> DriverResult<()>;
    /// Allocates physical memory without an address.
    fn malloc_physical(
        &self,
        device: DeviceId,
        bytes: usize,
        huge_1g: bool,
    ) -> DriverResult<PhysicalHandle>;
    /// Frees physical memory.
    fn free_physical(&self, device: DeviceId, handle: PhysicalHandle) -> DriverResult<()>;
    /// Maps the whole of a handle at an address.
    fn map(
        &self,
        device: DeviceId,
        addr: usize,
        bytes: usize,
        handle: PhysicalHandle,
    ) -> DriverResult<()>;
    /// Unmaps the mapping that starts at an address. Nothing running may use it.
    fn unmap(&self, device: DeviceId, addr: usize) -> DriverResult<()>;
}
