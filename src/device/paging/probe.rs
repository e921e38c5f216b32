//! Whether the driver maps memory, and one handle at two addresses that show the same: tried once, with one page.

use crate::device::DeviceAllocator;
use crate::device::state::State;
use crate::driver::{Contents, DriverError, DriverResult, PhysicalHandle, VirtualMemory};
use crate::ids::DeviceId;
use crate::size::SMALL_SEGMENT;
use crate::sync::MutexGuard;

const PAGE: usize = SMALL_SEGMENT;
/// What is written and read at either end of the page, bytes: a cache line of the device or more.
const SAMPLE: usize = 512;
/// What is written at the first address, and then at the second.
const FIRST: u8 = 0x5a;
const SECOND: u8 = 0xa5;

/// What a try holds.
#[derive(Debug, Default)]
pub(in crate::device) struct Probe {
    addr: Option<usize>,
    handle: Option<PhysicalHandle>,
    /// Where that is mapped.
    mapped: Vec<usize>,
}

/// How to see what memory holds.
enum Access<'a> {
    None,
    /// Not while a graph is captured, where copies that wait are forbidden.
    NotNow,
    To(&'a dyn Contents),
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

    /// Maps one handle twice. Contents are compared where there is access to them.
    fn run(&mut self, driver: &dyn VirtualMemory, contents: Access<'_>, device: DeviceId) -> Found {
        let once = (|| {
            let addr = driver.reserve_address(device, 2 * PAGE)?;
            self.addr = Some(addr);
            let handle = driver.malloc_physical(device, PAGE, false)?;
            self.handle = Some(handle);
            driver.map(device, addr, PAGE, handle)?;
            self.mapped.push(addr);
            Ok((addr, handle))
        })();
        let (first, handle) = match once {
            Ok(mapped) => mapped,
            Err(error) => return Found::Failure(error),
        };
        let second = first + PAGE;
        if driver.map(device, second, PAGE, handle).is_err() {
            return Found::OneAddress;
        }
        self.mapped.push(second);
        // What could not be seen is not relied on, where there is a way to see it.
        let same = match contents {
            Access::None => true,
            Access::NotNow => false,
            Access::To(contents) => {
                let same = self.compare(driver, contents, device, first, second);
                same.unwrap_or(false)
            }
        };
        if same {
            Found::TwoAddresses
        } else {
            Found::OneAddress
        }
    }

    /// Whether what is written at either address is read at the other, and stays when the first one is no longer mapped.
    /// True, too, where memory does not keep what is written to it (a simulator without backing): nothing can be seen then.
    fn compare(
        &mut self,
        driver: &dyn VirtualMemory,
        contents: &dyn Contents,
        device: DeviceId,
        first: usize,
        second: usize,
    ) -> DriverResult<bool> {
        let ends = [0, PAGE - SAMPLE];
        let holds = |addr: usize, value: u8| -> DriverResult<bool> {
            for end in ends {
                let mut found = [0; SAMPLE];
                contents.read(device, addr + end, &mut found)?;
                if found != [value; SAMPLE] {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let fill = |addr: usize, value: u8| -> DriverResult<()> {
            let mut ends = ends.into_iter();
            ends.try_for_each(|end| contents.fill(device, addr + end, SAMPLE, value))
        };
        fill(first, FIRST)?;
        if !holds(first, FIRST)? {
            return Ok(true);
        }
        if !holds(second, FIRST)? {
            return Ok(false);
        }
        fill(second, SECOND)?;
        if !holds(first, SECOND)? {
            return Ok(false);
        }
        driver.unmap(device, first)?;
        self.mapped.retain(|addr| *addr != first);
        holds(second, SECOND)
    }

    /// Gives back what it holds; after a failure the rest can be given back later.
    fn undo(&mut self, driver: &dyn VirtualMemory, device: DeviceId) -> DriverResult<()> {
        while let Some(&addr) = self.mapped.last() {
            driver.unmap(device, addr)?;
            self.mapped.pop();
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
        let contents = match self.driver.contents() {
            None => Access::None,
            Some(_) if self.in_capture(state) => Access::NotNow,
            Some(contents) => Access::To(contents),
        };
        // Also keeps other threads from trying.
        state.paging.probe = Some(Probe::default());
        let mut probe = Probe::default();
        let (found, undone) = MutexGuard::unlocked(state, || {
            let found = probe.run(driver, contents, self.id);
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
