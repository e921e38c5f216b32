//! When it is worth to know whether a program repeats itself. Pure.

use crate::config::Rung;
use crate::device::state::State;
use crate::plan::MOST_STEPS;

/// Requests are noted once this part of what is held has moved: that costs host time.
const WORTH_NOTING: usize = 8;
/// The same where blocks are used on several streams, and what moves does not come to an end by itself: sharded programs
/// repeat themselves in each step, and a step moves much.
const WORTH_NOTING_OF_SEVERAL: usize = 16;
/// Three steps of a program with 1,365 large requests in each. Noting more than doubles what a request costs.
const MOST_AT_LEISURE: usize = 1 << 12;

impl State {
    /// A page moved for a request.
    pub(in crate::device) fn note_move(&mut self, page_size: usize) {
        if self.may_plan() {
            let part = if self.uses_several_streams() && !self.moves_fade() {
                WORTH_NOTING_OF_SEVERAL
            } else {
                WORTH_NOTING
            };
            let (moved, worth) = (self.ladder.pages_moved(), self.reserved() / part);
            self.planning.note_moved(moved, page_size, worth);
        }
    }

    /// Whether what moves comes to an end without a plan: where nobody asked for virtual segments and memory is ample, half of
    /// what moved may be held on top. A plan's range would be held on top, too.
    pub(in crate::device) fn moves_fade(&self) -> bool {
        self.may_keep() && self.is_ample()
    }

    /// Large requests that are noted at the most, unless the program repeats itself: fewer where it may never need a plan.
    pub(in crate::device) fn most_noted(&self) -> usize {
        if self.moves_fade() && self.reserved() < self.most_there_is() / 2 {
            MOST_AT_LEISURE
        } else {
            MOST_STEPS
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
