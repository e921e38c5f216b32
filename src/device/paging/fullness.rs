//! How full a full device is, and was: where so little is left that every page counts, pages are used sparingly, and all
//! the time where it has been so before, not only once it is too late. Pure.

use crate::device::state::{Request, State};

/// Memory is tight when less than this part of what is held can move (1.5 %), and stays so if that was as little once.
const TIGHT: usize = 64;

impl State {
    /// Whether memory that can move is scarcer than time: a full device is so full, or was once and will be again.
    pub(in crate::device) fn is_tight(&self) -> bool {
        let held = self.reserved();
        self.budget.device_full && self.budget.most_full + held / TIGHT > held
    }

    /// Notes how full a full device is with a request on it: what is active, and what can't move beside it.
    pub(in crate::device) fn note_fullness(&mut self, request: &Request) {
        if self.budget.device_full {
            let full = self.active_with(request) + self.stuck();
            self.budget.most_full = self.budget.most_full.max(full);
        }
    }

    /// Free bytes that share pages with blocks in use, so that they can't move.
    fn stuck(&self) -> usize {
        let lists = self.lists.iter().filter(|(id, _)| id.is_virtual());
        let free: usize = lists.map(|(_, list)| list.free.bytes(&self.arena)).sum();
        let donors = self.donors();
        let whole = donors.iter().map(|donor| donor.pages() * donor.page_size);
        free.saturating_sub(whole.sum())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Settings;
    use crate::device::DeviceAllocator;
    use crate::driver::fake::FakeDriver;
    use crate::ids::{DeviceId, PoolId, StreamKey};

    const MIB: usize = 1 << 20;

    #[test]
    fn what_cannot_move_counts_as_needed_on_a_full_device_from_then_on() {
        let driver = Arc::new(FakeDriver::new(64 * MIB));
        let mut settings = Settings::parse("expandable_segments:True").expect("valid");
        settings.segment_size = 8 * MIB;
        let device = DeviceAllocator::new(DeviceId(0), driver, settings, 32).expect("device");
        let allocate = |bytes| device.allocate(bytes, StreamKey(0)).expect("fits");
        // Six pages of 8 MiB under two blocks. Of the first one's two are whole; what is left beside the second can't
        // move, nor can what follows it.
        let first = allocate(20 * MIB);
        allocate(20 * MIB);
        assert!(device.deallocate(first));
        let mut state = device.state.lock();
        assert_eq!(state.reserved(), 48 * MIB);
        let second = state.stats.blocks.active_bytes() as usize;
        assert_eq!(state.stuck(), 32 * MIB - second);
        let request =
            |state: &mut State, bytes| state.request(bytes, 32, StreamKey(0), PoolId::DEFAULT);
        state.budget.device_full = true;
        // A MiB of 48 is left, more than 1.5 %.
        let small = request(&mut state, 15 * MIB);
        state.note_fullness(&small);
        assert!(!state.is_tight());
        let large = request(&mut state, 15 * MIB + MIB / 2);
        state.note_fullness(&large);
        assert!(state.is_tight());
        state.note_fullness(&small);
        assert!(state.is_tight());
        state.budget.device_full = false;
        assert!(!state.is_tight());
    }
}
