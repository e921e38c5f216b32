//! Live blocks found without the address map, where blocks are kept and few: most frees there are of blocks that were freed
//! before, and whose entries stay in the map. A free then waits for the block's line alone.

use crate::block::{BlockState, Place};
use crate::device::state::State;
use crate::ids::BlockId;

impl State {
    /// The block at `addr`, which is live or kept, and where its entry in the address map lies, if that was looked at.
    #[inline(always)]
    pub(super) fn find_noted(&mut self, addr: usize) -> Option<(Place, BlockId)> {
        let id = self.cache.lookups.guess(addr);
        let block = &self.arena[id];
        // One that is not live would not be freed by whoever asks; the map may know another one at its address.
        if block.addr == addr && block.state == BlockState::Live {
            return Some((Place::NONE, id));
        }
        let found = self.live.find(addr, &self.arena)?;
        self.cache.lookups.set(addr, found.1);
        Some(found)
    }

    /// Takes the entry of a block, which may not have been looked for, out of the address map.
    #[inline]
    pub(super) fn take_entry(&mut self, id: BlockId, entry: Place) {
        if entry == Place::NONE {
            let addr = self.arena[id].addr;
            let taken = self.live.remove(addr, &self.arena);
            debug_assert_eq!(taken, Some(id));
        } else {
            self.live.remove_at(entry);
        }
    }
}
