//! Addresses, physical memory and mappings of the driver without a device.

use super::FakeDriver;
use crate::driver::{DriverError, DriverResult, OUT_OF_MEMORY_CODE, PhysicalHandle, VirtualMemory};
use crate::ids::DeviceId;

/// What the runtime answers to arguments that make no sense.
pub(super) const INVALID_CODE: i32 = 107_000;

fn invalid<T>(call: &'static str) -> DriverResult<T> {
    Err(DriverError {
        call,
        code: INVALID_CODE,
    })
}

impl VirtualMemory for FakeDriver {
    fn reserve_address(&self, device: DeviceId, bytes: usize) -> DriverResult<usize> {
        let mut inner = self.enter("reserve_address")?;
        let slot = inner.devices.entry(device.0).or_default();
        let reserved: usize = slot.reserved.values().sum();
        if slot.window.is_some_and(|window| reserved + bytes > window) {
            // As the runtime: a window of addresses that is used up is no code of its own.
            return Err(DriverError {
                call: "reserve_address",
                code: OUT_OF_MEMORY_CODE,
            });
        }
        let addr = slot.take_addresses(device, bytes);
        slot.reserved.insert(addr, bytes);
        Ok(addr)
    }

    fn release_address(&self, device: DeviceId, addr: usize) -> DriverResult<()> {
        let mut inner = self.enter("release_address")?;
        let slot = inner.devices.entry(device.0).or_default();
        let Some(&bytes) = slot.reserved.get(&addr) else {
            return invalid("release_address");
        };
        if slot.mapped.range(addr..addr + bytes).next().is_some() {
            return invalid("release_address");
        }
        slot.reserved.remove(&addr);
        slot.return_addresses(addr, bytes);
        Ok(())
    }

    fn malloc_physical(
        &self,
        device: DeviceId,
        bytes: usize,
        huge_1g: bool,
    ) -> DriverResult<PhysicalHandle> {
        let mut inner = self.enter("malloc_physical")?;
        inner.huge_pages += u64::from(huge_1g);
        let capacity = self.capacity;
        let slot = inner.devices.entry(device.0).or_default();
        if bytes > capacity.saturating_sub(slot.used + slot.others) {
            return Err(DriverError {
                call: "malloc_physical",
                code: OUT_OF_MEMORY_CODE,
            });
        }
        slot.used += bytes;
        let handle = slot.handle_numbers.take();
        slot.physical.insert(handle, (bytes, 0));
        Ok(PhysicalHandle(handle))
    }

    fn free_physical(&self, device: DeviceId, handle: PhysicalHandle) -> DriverResult<()> {
        let mut inner = self.enter("free_physical")?;
        let slot = inner.devices.entry(device.0).or_default();
        match slot.physical.get(&handle.0).copied() {
            Some((bytes, 0)) => {
                slot.physical.remove(&handle.0);
                slot.handle_numbers.give_back(handle.0);
                slot.used -= bytes;
                Ok(())
            }
            _ => invalid("free_physical"),
        }
    }

    fn map(
        &self,
        device: DeviceId,
        addr: usize,
        bytes: usize,
        handle: PhysicalHandle,
    ) -> DriverResult<()> {
        let mut inner = self.enter("map")?;
        let most = if inner.aliasing_refused {
            1
        } else {
            usize::MAX
        };
        let apart = inner.aliases_apart;
        let slot = inner.devices.entry(device.0).or_default();
        let reserved = slot.reserved.range(..=addr).next_back();
        let inside = reserved.is_some_and(|(base, size)| addr + bytes <= base + size);
        let taken = slot.mapped.range(addr..addr + bytes).next().is_some();
        match slot.physical.get_mut(&handle.0) {
            Some((size, at)) if *size == bytes && *at < most && inside && !taken => {
                *at += 1;
                slot.mapped.insert(addr, handle);
                if apart {
                    self.renew(addr, bytes);
                }
                Ok(())
            }
            _ => invalid("map"),
        }
    }

    fn unmap(&self, device: DeviceId, addr: usize) -> DriverResult<()> {
        let mut inner = self.enter("unmap")?;
        let slot = inner.devices.entry(device.0).or_default();
        let Some(handle) = slot.mapped.remove(&addr) else {
            return invalid("unmap");
        };
        if let Some((_, at)) = slot.physical.get_mut(&handle.0) {
            *at -= 1;
        }
        Ok(())
    }
}
