//! When it is worth to know whether a program repeats itself. Pure.

use crate::config::Rung;
use crate::device::state::State;

impl State {
    /// A page moved for a request.
    pub(in crate::device) fn note_move(&mut self, page_size: usize) {
        if self.may_plan() {
            let (moved, held) = (self.ladder.pages_moved(), self.reserved());
            self.planning.note_moved(moved, page_size, held);
        }
    }

    /// Whether blocks may lie where a plan has them.
    pub(in crate::device) fn may_plan(&self) -> bool {
        self.paging.virtual_memory
            && self.captures == 0
            && self.settings.max_split_size == usize::MAX
            && self.settings.base_addr_aligned_size.is_power_of_two()
            && !self.settings.skipped_rungs.has(Rung::PlannedBlocks)
    }
}
