//! Frees on the hot path: see [`serve`](super::serve).

use crate::block::{BlockState, NO_USES, Place, prefetch_bucket};
use crate::device::DeviceAllocator;
use crate::device::state::State;
use crate::ids::BlockId;

/// The block freed last, as long as it has not returned to its list. It is in no list, its state is
/// `Pending`, its entry in the address map is still there, and all statistics but those of inactive splits
/// have counted it as free.
#[derive(Debug, Clone, Copy)]
pub(in crate::device) struct LastFreed {
    /// [`BlockId::NONE`]: none.
    pub block: BlockId,
    /// [`Place::NONE`]: not looked for, as most blocks that are kept leave the address map late or never.
    pub entry: Place,
}

impl Default for LastFreed {
    fn default() -> Self {
        Self::NONE
    }
}

impl LastFreed {
    pub const NONE: Self = Self {
        block: BlockId::NONE,
        entry: Place::NONE,
    };
}

impl DeviceAllocator {
    /// Gives the block at `addr` back; false when it is not a live block of this device, or that is poisoned.
    #[inline]
    pub fn deallocate(&self, addr: usize) -> bool {
        self.deallocate_plain(addr) || self.deallocate_with(addr, None)
    }

    /// Gives the block at `addr` back if nothing but that is to be done; false when it is not a live block
    /// of this device, or needs more.
    #[inline]
    pub(crate) fn deallocate_plain(&self, addr: usize) -> bool {
        let signals = self.signals.see();
        if signals.any() {
            // First of all: where there are many blocks, looking at the flag before costs 15 ns (measured; the line comes later).
            prefetch_bucket(signals, addr);
            if signals.is_crowded() {
                return self.deallocate_leased(addr);
            }
        }
        let Some(taken) = self.state.try_lock_as_is().or_else(|| self.wait()) else {
            return self.deallocate_leased(addr);
        };
        taken.with(|state| {
            if state.cache.bounce.put(addr) {
                return true;
            }
            if state.cache.bounce.block.is_some() {
                state.end_bounce();
            }
            if state.cache.marking {
                return self.deallocate_among_many(state, addr);
            }
            if state.cache.quick.is_on() {
                return state.free_noted(addr) || self.free_unnoted(state, addr);
            }
            self.free_plain::<false>(state, addr)
        })
    }

    /// Gives the block at `addr` back, if [`State::free_noted`] did not.
    #[inline(never)]
    fn free_unnoted(&self, state: &mut State, addr: usize) -> bool {
        let found = state.find_noted(addr);
        self.free_found::<false>(state, found)
    }

    /// Gives the block at `addr` back, which is looked at. `MANY`: it may be marked; none is unread.
    #[inline(always)]
    pub(super) fn free_plain<const MANY: bool>(&self, state: &mut State, addr: usize) -> bool {
        let found = state.live.find(addr, &state.arena);
        self.free_found::<MANY>(state, found)
    }

    /// The same of a block that was found.
    #[inline(always)]
    fn free_found<const MANY: bool>(
        &self,
        state: &mut State,
        found: Option<(Place, BlockId)>,
    ) -> bool {
        let Some((entry, id)) = found else {
            return false;
        };
        let block = &state.arena[id];
        let plain = block.state == BlockState::Live && block.flags == 0;
        if !plain || state.watched {
            return false;
        }
        if block.uses != NO_USES {
            return !self.is_exiting() && state.free_later(id, entry);
        }
        // Of blocks that are kept, which most are where any is, the neighbours don't matter.
        if !state.cache.quick.may_keep(block.size) {
            let (prev, next) = (block.prev, block.next);
            state.arena.prefetch(prev);
            state.arena.prefetch(next);
        }
        if state.cache.last_freed.block.is_some() {
            state.keep_last_freed();
        }
        if MANY {
            state.arena.marks.clear(id);
        }
        state.note_freed(id);
        state.cache.last_freed = LastFreed { block: id, entry };
        true
    }
}

impl State {
    /// Counts a live block that only its own stream used, and that is not marked any more, as free. Only while no history is
    /// recorded.
    #[inline(always)]
    pub(super) fn note_freed(&mut self, id: BlockId) {
        let (small, size, requested) = self.end_tenancy(id);
        self.stats.blocks.freed(small, size, requested);
    }

    /// Gives the block at `addr` back, if it is the one that was noted last for it and nothing but that is to be done. Only
    /// where blocks may be kept, which none is while a history is recorded.
    #[inline(always)]
    fn free_noted(&mut self, addr: usize) -> bool {
        debug_assert!(!self.watched);
        let id = self.cache.lookups.guess(addr);
        if self.cache.last_freed.block.is_some() {
            self.arena.prefetch(id);
            self.keep_last_freed();
        }
        let block = &self.arena[id];
        let plain = (block.state, block.flags, block.uses) == (BlockState::Live, 0, NO_USES);
        if block.addr != addr || !plain {
            return false;
        }
        self.note_freed(id);
        self.cache.last_freed = LastFreed {
            block: id,
            entry: Place::NONE,
        };
        true
    }

    /// A live block that only its own stream used is live no more. Returns what of it counted: of the small pool, bytes,
    /// bytes asked for.
    #[inline(always)]
    pub(super) fn end_tenancy(&mut self, id: BlockId) -> (bool, i64, i64) {
        let block = &mut self.arena[id];
        debug_assert_eq!((block.state, block.uses), (BlockState::Live, NO_USES));
        block.state = BlockState::Pending;
        block.generation = block.generation.wrapping_add(1);
        let requested = std::mem::take(&mut block.requested) as i64;
        self.tick += 1;
        (block.list.is_small(), block.counted() as i64, requested)
    }

    /// Gives a block back that other streams used, if its events may wait for those of other blocks.
    #[inline(never)]
    fn free_later(&mut self, id: BlockId, place: Place) -> bool {
        if self.threads.leasing || !self.may_defer(self.arena[id].size) {
            return false;
        }
        if self.cache.last_freed.block.is_some() {
            self.keep_last_freed();
        }
        self.take_entry(id, place);
        self.retire(id, None);
        self.defer(id);
        self.asking |= self.events_outstanding();
        self.attention |= self.asking;
        true
    }

    /// Returns the block freed last to its list.
    #[inline]
    pub(super) fn finish_last_free(&mut self) {
        let LastFreed { block, entry } =
            std::mem::replace(&mut self.cache.last_freed, LastFreed::NONE);
        self.take_entry(block, entry);
        let list = self.arena[block].list;
        self.return_to_list(block, list);
    }
}
