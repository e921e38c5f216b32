//! Whether the driver maps memory, and one handle at two addresses: tried once, with one page.

use crate::device::DeviceAllocator;
use crate::device::state::State;
use crate::driver::{DriverError, DriverResult, PhysicalHandle, VirtualMemory};
use crate::ids::DeviceId;
use crate::size::SMALL_SEGMENT;
use crate::sync::MutexGuard;

const PAGE: usize = SMALL_SEGMENT;

/// What a try holds.
#[derive(Debug, Default)]
pub(in crate::device) struct Probe {
    addr: Option<usize>,
    handle: Option<PhysicalHandle>,
    mapped: usize,
}

/// What a try showed.
enum Found {
    TwoAddresses,
    OneAddress,
    Failure(DriverError),
}

impl Probe {
    /// Bytes of physical memory.
    pub fn bytes(&self) -> usize {
        self.handle.map_or(0, |_| PAGE)
    }

    /// Maps one handle twice.
    fn run(&mut self, driver: &dyn VirtualMemory, device: DeviceId) -> Found {
        let once = (|| {
            let addr = driver.reserve_address(device, 2 * PAGE)?;
            self.addr = Some(addr);
            let handle = driver.malloc_physical(device, PAGE, false)?;
            self.handle = Some(handle);
            driver.map(device, addr, PAGE, handle)?;
            self.mapped = 1;
            Ok((addr, handle))
        })();
        let (addr, handle) = match once {
            Ok(mapped) => mapped,
            Err(error) => return Found::Failure(error),
        };
        if driver.map(device, addr + PAGE, PAGE, handle).is_err() {
            return Found::OneAddress;
        }
        self.mapped = 2;
        Found::TwoAddresses
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
    /// Finds out whether the driver maps memory, and at two addresses. What could not be tried (on a full
    /// device, say) is tried again with the next reservation.
    pub(in crate::device) fn probe_mapping(&self, state: &mut MutexGuard<'_, State>) {
        if state.paging.aliasing.is_some() || state.paging.probe.is_some() {
            return;
        }
        let Some(driver) = self.driver.virtual_memory() else {
            return;
        };
        // Also keeps other threads from trying.
        state.paging.probe = Some(Probe::default());
        let mut probe = Probe::default();
        let (found, undone) = MutexGuard::unlocked(state, || {
            let found = probe.run(driver, self.id);
            (found, probe.undo(driver, self.id))
        });
        state.paging.aliasing = match &found {
            Found::TwoAddresses => Some(true),
            Found::OneAddress => Some(false),
            Found::Failure(_) => None,
        };
        // What fails for another reason than a full device, or can't be undone, is not relied on.
        state.paging.maps = match &found {
            Found::Failure(error) if error.is_out_of_memory() => None,
            Found::Failure(_) => Some(false),
            _ => Some(undone.is_ok()),
        };
        state.paging.probe = undone.is_err().then_some(probe);
    }

    /// Gives back what is left of a try that could not be undone. What stays is no page that a client waits for: the next
    /// call tries again.
    pub(in crate::device) fn finish_probe(&self, state: &mut MutexGuard<'_, State>) {
        // What is left empty keeps other threads from trying; a try that is under way left nothing yet.
        let left = state
            .paging
            .probe
            .as_mut()
            .filter(|probe| probe.addr.is_some());
        let (Some(driver), Some(mut probe)) =
            (self.driver.virtual_memory(), left.map(std::mem::take))
        else {
            return;
        };
        let undone = MutexGuard::unlocked(state, || probe.undo(driver, self.id));
        state.paging.probe = undone.is_err().then_some(probe);
    }
}
