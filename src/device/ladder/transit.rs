//! Memory that other threads hold for a moment, while they call the driver: a request that found none waits for it.

use std::time::Duration;

use crate::device::DeviceAllocator;
use crate::device::state::State;
use crate::primitives::sleep;
use crate::sync::MutexGuard;

const NAP: Duration = Duration::from_millis(1);
/// Naps of a request at the most: what the others wait for may be work that its thread has yet to submit.
pub(super) const NAPS: u32 = if cfg!(loom) { 1 } else { 200 };

impl State {
    /// Whether a thread that released the lock holds memory which may be free in a moment: pages that change, bytes
    /// asked of the driver or given back to it, blocks whose events are recorded or waited for. The calling thread
    /// holds none itself.
    pub(super) fn is_memory_in_transit(&self) -> bool {
        self.busy > 0
            || self.budget.growing > 0
            || self.budget.leaving > 0
            || self.events.detached > 0
    }
}

impl DeviceAllocator {
    /// Waits until no thread holds memory for a moment, as long as `naps` are left. Whether it waited at all.
    pub(super) fn await_transit(&self, state: &mut MutexGuard<'_, State>, naps: &mut u32) -> bool {
        let before = *naps;
        while *naps > 0 && state.is_memory_in_transit() {
            *naps -= 1;
            MutexGuard::unlocked(state, || sleep(NAP));
        }
        *naps < before
    }
}
