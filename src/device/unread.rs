//! Frees without a look at the block, where there are many: its cache line is asked for, and the next operation but one
//! finds it there.
//!
//! The address map and the block's mark tell that it is live and that nothing but to keep or merge it is to be done
//! ([`Marks`](crate::block::Marks)). What can't be known without its size is made up for by whoever takes the lock next
//! ([`State::read_unread`]), but for an allocation that a block kept before serves, if it moves no peak of what is counted.

use super::hot::LastFreed;
use super::state::State;
use crate::ids::{BlockId, ListId};

/// Blocks, free ones included, from which on they are unlikely to be in a processor's cache. With fewer the recorded
/// traces take a tenth more time this way, as the block freed last is no longer the first to be handed out again; random
/// sizes take a fifth less with 10,000 and with 100,000 live blocks.
pub(super) const MANY: usize = 8192;

impl super::DeviceAllocator {
    /// From now on there count as many blocks, however few there are: for tests.
    #[doc(hidden)]
    pub fn assume_many_blocks(&self) {
        self.state.lock().many = 0;
    }
}

impl State {
    /// Settles whether frees look at no block from now on.
    pub(super) fn settle_marking(&mut self) {
        self.marking = self.quick.is_on() && self.arena.len() >= self.many;
    }

    /// Marks a block that was handed out, where that may be of use.
    #[inline]
    pub(super) fn mark(&mut self, id: BlockId, addr: usize, small: bool) {
        if self.marking {
            self.arena.marks.set(id, addr, small);
        }
    }

    /// Gives the block at `addr` back without a look at it; false when it has no mark, or waits matter.
    #[inline(never)]
    pub(super) fn free_unread(&mut self, addr: usize) -> bool {
        if self.history.recording || self.stats.blocks.has_waiting() {
            return false;
        }
        let Some((entry, block, small)) = self.live.find_marked(addr, &self.arena.marks) else {
            return false;
        };
        self.arena.prefetch(block);
        self.arena.marks.clear(block);
        if self.unread.block.is_some() {
            self.read_unread();
        }
        self.stats.blocks.freed_unread(small);
        self.unread = LastFreed { block, entry };
        true
    }

    /// Looks at the block that was freed without: it is kept, or the one freed last.
    #[inline]
    pub(super) fn read_unread(&mut self) {
        let freed = std::mem::replace(&mut self.unread, LastFreed::NONE);
        if self.last_freed.block.is_some() {
            self.keep_last_freed();
        }
        let (small, size, requested) = self.end_tenancy(freed.block);
        self.stats.blocks.freed_bytes(small, size, requested);
        let block = &self.arena[freed.block];
        debug_assert_eq!(block.flags, 0);
        let (prev, next) = (block.prev, block.next);
        self.last_freed = freed;
        if self.quick.is_on() && self.keeps_last_freed() {
            self.last_freed = LastFreed::NONE;
        } else {
            self.arena.prefetch(prev);
            self.arena.prefetch(next);
        }
    }

    /// A block that was kept, for a request of its size, while another is unread; looks at that if this finds none.
    #[inline(never)]
    pub(super) fn take_kept_first(
        &mut self,
        list: ListId,
        size: usize,
        counted: usize,
        requested: usize,
        small: bool,
    ) -> Option<usize> {
        let room = self.stats.blocks.has_room(small, counted as i64, requested as i64);
        if room && let Some(addr) = self.take_kept(list, size, counted, requested) {
            return Some(addr);
        }
        self.read_unread();
        if !room {
            return self.take_kept(list, size, counted, requested);
        }
        // It was asked for above; what was just kept may serve.
        let id = self.quick.take_unasked(&self.arena, list, size)?;
        Some(self.hand_out_kept(id, small, counted, requested))
    }
}
