//! Freed blocks of virtual segments that are kept as they are, where memory is ample.
//!
//! Blocks of sizes that a program asks for again and again skip merging and splitting: see [`QuickLists`]. The price
//! is memory, so large ones are kept only where nobody asked for virtual segments, and up to an eighth more than needed
//! may be held anyway ([`State::target`]); small ones, which are a small part of any program's memory, where somebody
//! did, too; and none once memory is short. A request that the free blocks don't serve, and everyone who looks at the
//! device, sees these blocks merged.
//!
//! [`QuickLists`]: crate::block::QuickLists

use super::freeing::LastFreed;
use super::serve::slack;
use crate::block::{BlockState, Found, Keep, Limits, Slot};
use crate::config::{ExpandableSegments, Rung};
use crate::device::state::State;
use crate::ids::{BlockId, ListId, StreamKey};
use crate::size::{MIN_BLOCK_SIZE, MOST_STEPPED, SMALL_SIZE, STEPS, kept_size, kept_step};

/// The part of what is held that may be kept. The four recorded traces, with ample memory: half as much reserves 0.01 to
/// 0.04 less of what is live and takes up to a tenth more time; twice as much reserves up to 0.03 more, and takes 6 to 11 %
/// less on three, 6 % more on one that comes to the most it may hold.
const SHARE: usize = 16;
/// The same while less than three quarters of all the memory there is are held: 12, 0, 5 and 6 % less time on the four
/// traces.
const SHARE_AT_LEISURE: usize = 8;

/// The same for blocks of up to 2 MiB, which in the recorded traces are a small part of what is held.
const SMALL_SHARE: usize = 8;
/// A block larger than this part of what may be kept of large ones is not: smaller ones in its place serve more requests.
/// The four recorded traces take 1, 3 and 4 to 6 % fewer instructions and as many with 8 to 12; with 16 s1 takes 5 % more.
const LARGEST_SHARE: usize = 10;
/// But one of this size is, bytes: where little is held there are few blocks.
const LEAST_LARGEST: usize = 64 << 20;
/// Where virtual segments were asked for: the part of all the memory there is that may be kept of small blocks. 32 MiB of
/// 64 GiB, which none of the recorded traces notices: what they need at the least is the same to 0.1 %
/// (`docs/experiments-time.md`, *Small blocks*).
const ASKED_SHARE: usize = 2048;
/// The same of what they may have beyond what their requests count for.
const ASKED_STEPS_SHARE: usize = 512;
/// The part of all the memory there is that blocks may have beyond what their requests count for.
const STEPS_SHARE: usize = 128;

/// Frees after which a size that was not asked for meanwhile gives its blocks up, where there is no room for others.
const PERIOD: u64 = 512;

impl State {
    /// Settles how much may be kept from now on.
    pub(super) fn settle_quick(&mut self, simple: bool) {
        let wanted = !self.settings.skipped_rungs.has(Rung::KeptBlocks);
        let limits = if !simple || !wanted || !self.paging.virtual_memory || !self.is_ample() {
            Limits::default()
        } else if self.may_keep() {
            self.limits_at_will()
        } else {
            self.limits_where_asked()
        };
        self.cache.quick.limit(limits);
    }

    fn limits_at_will(&self) -> Limits {
        let held = self.reserved();
        let at_leisure = held < self.most_there_is() * 3 / 4;
        let large = held / if at_leisure { SHARE_AT_LEISURE } else { SHARE };
        Limits {
            small: held / SMALL_SHARE,
            large,
            largest: (large / LARGEST_SHARE).max(LEAST_LARGEST),
            stepped: MOST_STEPPED,
            beyond: self.left_beyond(),
        }
    }

    fn limits_where_asked(&self) -> Limits {
        Limits {
            small: self.most_there_is() / ASKED_SHARE,
            large: 0,
            largest: SMALL_SIZE,
            stepped: SMALL_SIZE,
            beyond: self.left_beyond(),
        }
    }

    /// The size to be cut for a request: its own, where blocks of about that size don't come back, and once blocks of few
    /// sizes would have too much beyond what counts.
    #[inline]
    pub(super) fn size_to_cut(&mut self, counted: usize, size: usize) -> usize {
        if size == counted || self.cache.returns.expects(size) && self.settle_steps() {
            size
        } else {
            counted
        }
    }

    /// After a block that was there was handed out with so many units beyond what counts: it may have been cut for a request
    /// that it fits.
    #[inline(always)]
    pub(super) fn note_beyond(&mut self, units: u16) {
        if self.cache.quick.spend(units) {
            self.end_or_settle_steps();
        }
    }

    #[cold]
    #[inline(never)]
    fn end_or_settle_steps(&mut self) {
        self.settle_steps();
    }

    /// Settles how much blocks of few sizes may have beyond what counts from now on. False: they end.
    #[inline]
    fn settle_steps(&mut self) -> bool {
        let left = self.left_beyond();
        self.cache.quick.allow_steps(left);
        left.is_some()
    }

    /// What blocks may have beyond what counts, bytes, on top of a step for each; nothing, where that would be more than next
    /// to nothing beside the memory there is.
    fn left_beyond(&self) -> Option<usize> {
        let [_, small_bytes] = self.stats.blocks.active(0);
        let [large_blocks, _] = self.stats.blocks.active(1);
        self.left_beyond_of(small_bytes as usize, large_blocks as usize)
    }

    /// Whether blocks may have up to so many steps beyond what counts until peaks move.
    pub(super) fn affords_steps_up_to_peaks(&self, steps: usize) -> bool {
        let [[[_, small_bytes], _], ..] = self.stats.blocks.active_parts(true);
        let [_, [[_, large_blocks], _], _] = self.stats.blocks.active_parts(false);
        let (small_bytes, large_blocks) = (small_bytes as usize, large_blocks as usize);
        self.left_beyond_of(steps * small_bytes, steps * large_blocks)
            .is_some()
    }

    fn left_beyond_of(&self, small_bytes: usize, large_blocks: usize) -> Option<usize> {
        let small = small_bytes / STEPS;
        let large = large_blocks * kept_step(MOST_STEPPED);
        // Large ones have none where virtual segments were asked for.
        let (beyond, share) = match self.settings.expandable_segments {
            ExpandableSegments::Default => (small + large, STEPS_SHARE),
            _ => (small, ASKED_STEPS_SHARE),
        };
        (self.most_there_is() / share).checked_sub(beyond)
    }

    /// A block that was kept, for a request of its size. `counted`: the request's bytes after rounding; `MANY`: it may have to
    /// be marked.
    #[inline(always)]
    pub(in crate::device) fn take_kept<const MANY: bool>(
        &mut self,
        list: ListId,
        size: usize,
        counted: usize,
        requested: usize,
    ) -> Option<usize> {
        let small = size <= SMALL_SIZE;
        match self.cache.quick.take(&self.arena, list, size) {
            Found::Block(id) => Some(self.hand_out_kept::<MANY>(id, small, counted, requested)),
            Found::Nothing => None,
            Found::Stale(slot) => {
                self.give_up_slot(slot);
                self.cache.quick.forget(slot);
                None
            }
        }
    }

    /// Hands the block freed last out again, for a request of its list and size, which is one that is kept.
    #[inline]
    pub(super) fn take_unmerged<const MANY: bool>(
        &mut self,
        small: bool,
        counted: usize,
        requested: usize,
        stream: StreamKey,
    ) -> usize {
        let freed = std::mem::replace(&mut self.cache.last_freed, LastFreed::NONE);
        let addr = self.hand_out_kept::<MANY>(freed.block, small, counted, requested);
        if self.cache.returned == freed.block {
            self.begin_bounce(freed, addr, stream, requested, (0, 0));
        }
        self.cache.returned = freed.block;
        addr
    }

    #[inline(always)]
    pub(super) fn hand_out_kept<const MANY: bool>(
        &mut self,
        id: BlockId,
        small: bool,
        counted: usize,
        requested: usize,
    ) -> usize {
        let block = &mut self.arena[id];
        block.state = BlockState::Live;
        block.requested = requested;
        block.slack = slack(block.size, counted);
        let (addr, beyond) = (block.addr, block.slack);
        if MANY {
            self.mark(id, addr, small);
        }
        self.stats
            .blocks
            .handed_out(small, counted as i64, requested as i64);
        self.note_beyond(beyond);
        addr
    }

    /// Finishes the last free, unless the block is kept.
    #[inline]
    pub(super) fn keep_last_freed(&mut self) {
        if self.cache.quick.is_on() && self.keeps_last_freed() {
            self.cache.last_freed = LastFreed::NONE;
        } else {
            self.finish_last_free();
        }
    }

    #[inline]
    pub(super) fn keeps_last_freed(&mut self) -> bool {
        let id = self.cache.last_freed.block;
        let block = &self.arena[id];
        let (list, size) = (block.list, block.size);
        let outcome = self.cache.quick.keep(&mut self.arena, list, size, id);
        if outcome == Keep::Full {
            let large = size > MOST_STEPPED;
            self.make_room(large);
            if self.cache.quick.is_full() {
                // Those of the other kind may be in the way.
                self.make_room(!large);
            }
        }
        outcome == Keep::Kept
    }

    /// Gives up what was not asked for since the last time, where the blocks above [`MOST_STEPPED`] or those up to there
    /// have no room.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, large: bool) {
        let made = &mut self.cache.room_made[usize::from(large)];
        if self.tick.wrapping_sub(*made) < PERIOD {
            return;
        }
        *made = self.tick;
        for slot in self.cache.quick.holding(None, large, true) {
            self.give_up_slot(slot);
        }
    }

    /// A free block of at least `size` bytes, for a request that finds none, out of blocks that are kept.
    #[cold]
    #[inline(never)]
    pub(super) fn merge_for(&mut self, list: ListId, size: usize) -> Option<BlockId> {
        if self.cache.quick.is_empty() {
            return None;
        }
        if size > MOST_STEPPED {
            return self.merge_large(list, size);
        }
        self.merge_from(list, size, |state, size| {
            state.cache.quick.take_unasked(&state.arena, list, size)
        })
    }

    /// The same for a request above [`MOST_STEPPED`]: what merging the list's large blocks makes up, first those of sizes
    /// that nobody asked for since the last time.
    fn merge_large(&mut self, list: ListId, size: usize) -> Option<BlockId> {
        for unused in [true, false] {
            if !self.cache.quick.holds_large() {
                break;
            }
            for slot in self.cache.quick.holding(Some(list), true, unused) {
                self.give_up_slot(slot);
            }
            if let Some(found) = self.best_virtual(list, size) {
                return Some(found);
            }
        }
        None
    }

    /// A free block of at least `size` bytes out of blocks whose entries are in the address map still: the smallest larger
    /// one, or what those of about its size make up when they are merged. `take` gives one of a size up.
    pub(super) fn merge_from(
        &mut self,
        list: ListId,
        size: usize,
        mut take: impl FnMut(&mut Self, usize) -> Option<BlockId>,
    ) -> Option<BlockId> {
        if size > MOST_STEPPED {
            return None;
        }
        let most = if list.is_small() {
            SMALL_SIZE
        } else {
            MOST_STEPPED
        };
        let mut larger = size;
        while larger < most {
            larger = kept_size(larger + MIN_BLOCK_SIZE);
            if let Some(id) = take(self, larger) {
                self.keep_no_more(id);
                return self.best_virtual(list, size);
            }
        }
        let mut smaller = size;
        while smaller > size / 2 {
            while let Some(id) = take(self, smaller) {
                self.keep_no_more(id);
            }
            if let Some(found) = self.best_virtual(list, size) {
                return Some(found);
            }
            smaller -= kept_step(smaller);
        }
        None
    }

    #[cold]
    #[inline(never)]
    fn give_up_slot(&mut self, slot: Slot) {
        while let Some(id) = self.cache.quick.pop_of(&self.arena, slot) {
            self.keep_no_more(id);
        }
    }

    /// Merges all blocks that are kept.
    #[cold]
    #[inline(never)]
    pub(super) fn give_up_quick(&mut self) {
        while let Some(id) = self.cache.quick.pop(&self.arena) {
            self.keep_no_more(id);
        }
    }

    pub(super) fn keep_no_more(&mut self, id: BlockId) {
        let block = &mut self.arena[id];
        block.state = BlockState::Pending;
        let (addr, list) = (block.addr, block.list);
        self.live.remove(addr, &self.arena);
        self.return_to_list(id, list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    const GIB: usize = 1 << 30;

    #[test]
    fn less_is_kept_of_large_blocks_once_most_of_the_memory_is_held() {
        let mut state = State::new(Settings::parse("").expect("valid"));
        (state.paging.virtual_memory, state.budget.total) = (true, 64 * GIB);
        let mut kept_of = |held: usize| {
            let more = held as i64 - state.stats.reserved_bytes.current();
            state.stats.reserved_bytes.change(false, more);
            state.settle_quick(true);
            state.cache.quick.most()
        };
        assert_eq!(kept_of(16 * GIB), [2 * GIB, 2 * GIB]);
        assert_eq!(kept_of(48 * GIB), [6 * GIB, 3 * GIB]);
        // An eighth more would be all there is.
        assert_eq!(kept_of(60 * GIB), [0, 0]);
        // A process that may have half has less to spare.
        state.budget.limit = Some(32 * GIB);
        state.settle_quick(true);
        assert_eq!(state.cache.quick.most(), [0, 0]);
    }
}
