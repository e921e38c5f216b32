//! Whether the driver maps one handle at two addresses: tried once, with one page.

use super::DeviceAllocator;
use super::state::State;
use crate::driver::{DriverResult, PhysicalHandle, VirtualMemory};
use crate::ids::DeviceId;
use crate::size::SMALL_SEGMENT;
use crate::sync::MutexGuard;

const PAGE: usize = SMALL_SEGMENT;

/// What a try holds.
#[derive(Debug, Default)]
pub(super) struct Probe {
    addr: Option<usize>,
    handle: Option<PhysicalHandle>,
    mapped: usize,
}

impl Probe {
    /// Bytes of physical memory.
    pub fn bytes(&self) -> usize {
        self.handle.map_or(0, |_| PAGE)
    }

    /// Maps one handle twice. `None` when that could not be tried.
    fn run(&mut self, driver: &dyn VirtualMemory, device: DeviceId) -> Option<bool> {
        let addr = driver.reserve_address(device, 2 * PAGE).ok()?;
        self.addr = Some(addr);
        let handle = driver.malloc_physical(device, PAGE, false).ok()?;
        self.handle = Some(handle);
        driver.map(device, addr, PAGE, handle).ok()?;
        self.mapped = 1;
        if driver.map(device, addr + PAGE, PAGE, handle).is_err() {
            return Some(false);
        }
        self.mapped = 2;
        Some(true)
    }

    /// Gives back what it holds; after a failure the rest can be given back later.
    fn undo(&mut self, driver: &dyn VirtualMemory, device: DeviceId) -> DriverResult<()> {
        if let Some(addr) = self.addr {
            while self.mapped > 0 {
                driver.unmap(device, addr + (self.mapped - 1) * PAGE)?;
                self.mapped -= 1;
            }
        }
        if let Some(handle) = self.handle {
            driver.free_physical(device, handle)?;
            self.handle = None;
        }
        if let Some(addr) = self.addr {
            driver.release_address(device, addr)?;
            self.addr = None;
        }
        Ok(())
    }
}

impl DeviceAllocator {
    /// Finds out whether aliasing is possible. Where that could not be tried (on a full device, say) it is
    /// tried again with the next reservation.
    pub(super) fn probe_aliasing(&self, state: &mut MutexGuard<'_, State>) {
        if state.aliasing.is_some() || state.probe.is_some() {
            return;
        }
        let Some(driver) = self.driver.virtual_memory() else {
            return;
        };
        // Also keeps other threads from trying.
        state.probe = Some(Probe::default());
        let mut probe = Probe::default();
        let (found, undone) = MutexGuard::unlocked(state, || {
            let found = probe.run(driver, self.id);
            (found, probe.undo(driver, self.id))
        });
        state.aliasing = found;
        state.probe = undone.is_err().then_some(probe);
    }

    /// Gives back what is left of a try that could not be undone.
    pub(super) fn finish_probe(&self, state: &mut MutexGuard<'_, State>) -> DriverResult<()> {
        let (Some(driver), Some(mut probe)) = (self.driver.virtual_memory(), state.probe.take())
        else {
            return Ok(());
        };
        let undone = MutexGuard::unlocked(state, || probe.undo(driver, self.id));
        state.probe = undone.is_err().then_some(probe);
        undone
    }
}
