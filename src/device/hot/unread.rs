//! Frees without a look at the block, where there are many: its cache line is asked for, and has come some frees later.
//! No entry of the address map moves meanwhile: whoever adds one has looked at all blocks before.
//!
//! The address map and the block's mark tell that it is live and that nothing but to keep or merge it is to be done
//! ([`Marks`](crate::block::BlockArena::marks)). What can't be known without its size is made up for by whoever takes the lock next
//! ([`State::read_unread`]), but for an allocation that a block kept before serves, if it moves no peak of what is counted.

use super::freeing::LastFreed;
use crate::device::DeviceAllocator;
use crate::device::state::State;
use crate::ids::{BlockId, ListId, StreamKey};

/// Frees that are unread at a time, a power of two: a line takes as long to come as one or two of them.
const MOST: usize = 4;
/// Blocks, free ones included, from which on they are unlikely to be in a processor's cache. With fewer the recorded
/// traces take a tenth more time this way, as the block freed last is no longer the first to be handed out again; random
/// sizes take a third less with 100,000 live blocks, next to nothing with 10,000.
pub(in crate::device) const MANY: usize = 8192;

/// The blocks freed last without a look at them, and where their entries in the address map lie, in order.
#[derive(Debug, Default)]
pub(in crate::device) struct Unread {
    ring: [LastFreed; MOST],
    first: usize,
    len: usize,
}

impl Unread {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds one; the first goes if there are as many as may be.
    #[inline]
    fn push(&mut self, freed: LastFreed) -> Option<LastFreed> {
        let first = (self.len == MOST).then(|| self.pop()).flatten();
        self.ring[(self.first + self.len) % MOST] = freed;
        self.len += 1;
        first
    }

    #[inline]
    fn pop(&mut self) -> Option<LastFreed> {
        if self.len == 0 {
            return None;
        }
        let first = self.ring[self.first % MOST];
        self.first += 1;
        self.len -= 1;
        Some(first)
    }
}

impl DeviceAllocator {
    /// [`Self::allocate_cached`] where blocks are marked.
    #[inline(never)]
    pub(super) fn allocate_among_many(
        &self,
        state: &mut State,
        bytes: usize,
        stream: StreamKey,
    ) -> Option<usize> {
        self.serve_cached::<true>(state, bytes, stream)
    }

    /// [`Self::deallocate_plain`] where blocks are marked.
    #[inline(never)]
    pub(super) fn deallocate_among_many(&self, state: &mut State, addr: usize) -> bool {
        state.free_marked(addr) || self.free_plain::<true>(state, addr)
    }

    /// From now on there count as many blocks, however few there are: for tests.
    #[doc(hidden)]
    pub fn assume_many_blocks(&self) {
        self.state.lock().cache.many = 0;
    }
}

impl State {
    /// Settles whether live blocks are marked from now on. Without that there is no mark.
    pub(super) fn settle_marking(&mut self) {
        let most = if self.cache.marking {
            self.cache.many / 2
        } else {
            self.cache.many
        };
        let marking = self.cache.quick.is_on() && self.arena.len() >= most;
        if self.cache.marking && !marking {
            self.arena.marks.wipe();
        }
        self.cache.marking = marking;
    }

    /// Marks a block that was handed out, where that may be of use.
    #[inline]
    pub(super) fn mark(&mut self, id: BlockId, addr: usize, small: bool) {
        if self.cache.marking {
            self.arena.marks.set(id, addr, small);
        }
    }

    /// Gives the block at `addr` back without a look at it. Otherwise false, and no block is unread.
    #[inline]
    pub(super) fn free_marked(&mut self, addr: usize) -> bool {
        // What was just handed out lies in the processor's cache, and may be asked for again at once. Where blocks wait,
        // peaks of active ones are noted before any is freed.
        let unfit = addr == self.cache.newest || self.watched || self.stats.blocks.has_waiting();
        let found = (!unfit).then(|| self.live.find_marked(addr, &self.arena.marks));
        let Some((entry, block, small)) = found.flatten() else {
            self.read_unread();
            return false;
        };
        self.arena.prefetch(block);
        self.arena.marks.clear(block);
        self.stats.blocks.freed_unread(small);
        if let Some(first) = self.cache.unread.push(LastFreed { block, entry }) {
            self.read(first);
        }
        true
    }

    /// Looks at all blocks that were freed without.
    #[inline]
    pub(super) fn read_unread(&mut self) {
        while let Some(freed) = self.cache.unread.pop() {
            self.read(freed);
        }
    }

    /// Looks at a block that was freed without: it is kept, or the one freed last.
    #[inline]
    fn read(&mut self, freed: LastFreed) {
        if self.cache.last_freed.block.is_some() {
            self.keep_last_freed();
        }
        let (small, size, requested) = self.end_tenancy(freed.block);
        self.stats.blocks.freed_bytes(small, size, requested);
        let block = &self.arena[freed.block];
        debug_assert_eq!(block.flags, 0);
        let (prev, next) = (block.prev, block.next);
        self.cache.last_freed = freed;
        if self.cache.quick.is_on() && self.keeps_last_freed() {
            self.cache.last_freed = LastFreed::NONE;
        } else {
            self.arena.prefetch(prev);
            self.arena.prefetch(next);
        }
    }

    /// A block that was kept, for a request of its size, while another is unread; looks at that if this finds none.
    #[inline]
    pub(super) fn take_kept_first(
        &mut self,
        list: ListId,
        size: usize,
        counted: usize,
        requested: usize,
        small: bool,
    ) -> Option<usize> {
        let room = self
            .stats
            .blocks
            .has_room(small, counted as i64, requested as i64);
        if room && let Some(addr) = self.take_kept::<true>(list, size, counted, requested) {
            return Some(addr);
        }
        self.read_unread();
        if !room {
            return self.take_kept::<true>(list, size, counted, requested);
        }
        // It was asked for above; what was just kept may serve.
        let id = self.cache.quick.take_unasked(&self.arena, list, size)?;
        Some(self.hand_out_kept::<true>(id, small, counted, requested))
    }
}

#[cfg(test)]
mod tests {
    use crate::device::tests::races::{MIB, device, token};
    use crate::ids::StreamKey;

    #[test]
    fn a_block_that_becomes_a_guest_is_looked_at_when_it_is_freed() {
        const HOME: StreamKey = StreamKey(1);
        const OTHER: StreamKey = StreamKey(2);
        let (driver, device) = device(8 << 30, "");
        let allocate = |bytes: usize, stream| device.allocate(bytes, stream).expect("fits");
        for _ in 0..8400 {
            allocate(100, HOME);
        }
        allocate(500 * MIB - 4096, HOME);
        let large = allocate(240 * MIB - 4096, OTHER);
        let block = allocate(100 * MIB - 4096, OTHER);
        assert!(device.deallocate(block));
        device.set_memory_fraction(0.125).expect("valid");
        // From cache, and therefore marked.
        assert_eq!(allocate(100 * MIB - 4096, OTHER), block);
        let is_marked = || {
            let state = device.state.lock();
            let id = state.live.get(block, &state.arena).expect("live");
            state.arena.marks.is_set(id)
        };
        assert!(is_marked());
        // The limit is reached, so that streams share.
        assert!(device.deallocate(large));
        allocate(200 * MIB - 4096, HOME);
        assert!(device.state.lock().guests.shared.is_some());
        assert!(!is_marked());
        driver.submit(token(OTHER));
        assert!(device.deallocate(block));
        device.check_consistency().expect("consistent");
    }
}
