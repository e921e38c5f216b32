//! Whether a program uses blocks on several streams, and whether it is sharded. Pure.

use super::large_blocks::{LARGE_POOL, LOOKED_AT};
use crate::device::state::State;

/// So many streams are several.
const SEVERAL: usize = 2;
/// A program that seems to load shards is taken for one of several streams until this part of all memory is active.
const PART_OF_SHARDS: usize = 4;

impl State {
    /// Whether blocks were used on several streams besides their own.
    pub(in crate::device) fn uses_several_streams(&self) -> bool {
        self.events.pending.streams() >= SEVERAL
    }

    /// Whether a program that seemed to load shards turned out to use blocks on several streams.
    pub(in crate::device) fn is_sharded(&self) -> bool {
        self.budget.seems_sharded && self.uses_several_streams()
    }

    /// Whether pages are to be those of several streams before that is known. Not in a working set of less than a look's
    /// worth, where pages of two sizes hold more than larger ones leave.
    pub(super) fn expects_several_streams(&self) -> bool {
        self.budget.seems_sharded && self.budget.most.active >= LOOKED_AT
    }

    /// Looks whether a program seems to load shards, while so many bytes of large blocks are active: a look's worth was
    /// freed before as much was active.
    pub(super) fn look_for_shards(&mut self, active: usize) {
        // Where segments are fixed nobody asks how much there is: what seems sharded stays so.
        let much = self.most_there_is() / PART_OF_SHARDS;
        let may_be_shards = active < much || much == 0;
        let seems = match self.budget.page_by_blocks {
            None => self.freed_a_look(),
            Some(_) => self.budget.seems_sharded,
        };
        self.budget.seems_sharded = may_be_shards && seems;
    }

    /// Whether as many bytes of large blocks were freed as a first look needs.
    pub(super) fn freed_a_look(&self) -> bool {
        self.stats.blocks.ever_freed(LARGE_POOL) >= LOOKED_AT as i64
    }
}

#[cfg(test)]
impl State {
    /// Blocks were used on so many streams besides their own.
    pub(in crate::device) fn use_on_streams(&mut self, streams: usize) {
        use crate::driver::{EventHandle, StreamToken};

        for id in (1..).take(streams) {
            let token = StreamToken {
                id,
                device: 0,
                reserved: 0,
            };
            let pending = crate::stream::PendingUse {
                event: EventHandle(1),
                block: crate::ids::BlockId::NONE,
                for_streams: false,
                last: true,
            };
            self.events.pending.push(token, pending);
        }
    }
}
