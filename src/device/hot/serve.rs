//! The hot path: allocations served from cache and frees, while nothing else goes on.
//!
//! A free does not merge the block: it is only noted as the last freed one, and its neighbours' cache
//! lines are asked for. Whoever takes the lock next finishes it: [`DeviceAllocator`]'s other functions see
//! it done whatever they do ([`Guarded::entered`](crate::sync::Guarded::entered)), the next operation here
//! does it itself, unless it is an allocation that would get the same memory back after the merge: then it
//! takes the block as it lies.
//! When that happens to the same block again, not even the statistics are touched ([`Bounce`](super::bounce::Bounce)).

use super::freeing::LastFreed;
use crate::block::BlockState;
use crate::config::MAX_BASE_ALIGN;
use crate::device::DeviceAllocator;
use crate::device::state::{Request, State};
use crate::ids::{BlockId, ListId, PoolId, StreamKey};
use crate::size::{MIN_BLOCK_SIZE, ROUND_LARGE, SMALL_SIZE};

/// What a block of so many bytes has beyond those that count, as [`Block::slack`](crate::block::Block::slack).
#[inline]
pub(super) fn slack(size: usize, counted: usize) -> u16 {
    ((size - counted) / MIN_BLOCK_SIZE) as u16
}

impl DeviceAllocator {
    /// A block of at least `bytes` for use on `stream`, if one is free now and nothing but an allocation
    /// is to be done. Not for 0 bytes, nor for more than [`MOST_BYTES`](crate::size::MOST_BYTES): whoever
    /// calls this has looked.
    #[inline]
    pub(crate) fn allocate_cached(&self, bytes: usize, stream: StreamKey) -> Option<usize> {
        if self.signals.see().is_crowded() {
            return self.allocate_leased(bytes, stream);
        }
        let Some(taken) = self.state.try_lock_as_is().or_else(|| self.wait()) else {
            return self.allocate_leased(bytes, stream);
        };
        taken.with(|state| {
            if let Some(addr) = state.cache.bounce.take(bytes, stream) {
                return Some(addr);
            }
            if state.attention {
                if state.threads.leasing {
                    return None;
                }
                if state.planning.is_on() && state.settings.round_size(bytes, self.pad) > SMALL_SIZE
                {
                    return state.serve_expected(bytes, self.pad, stream);
                }
                // It counts, though it need not ask.
                if !state.events.traffic.pass() && state.asking {
                    return None;
                }
            }
            if state.cache.bounce.block.is_some() {
                state.end_bounce();
            }
            if state.cache.marking {
                return self.allocate_among_many(state, bytes, stream);
            }
            self.serve_cached::<false>(state, bytes, stream)
        })
    }

    /// A block that is free now. `MANY`: blocks may be unread.
    #[inline(always)]
    pub(super) fn serve_cached<const MANY: bool>(
        &self,
        state: &mut State,
        bytes: usize,
        stream: StreamKey,
    ) -> Option<usize> {
        let counted = state.settings.round_size(bytes, self.pad);
        let size = state.cache.quick.size_of_block(counted);
        let small = size <= SMALL_SIZE;
        let virtual_memory = state.paging.virtual_memory;
        let list = state
            .lists
            .of(PoolId::DEFAULT, stream, small, virtual_memory);
        let asked = MANY && !state.cache.unread.is_empty();
        if asked && let Some(addr) = state.take_kept_first(list, size, counted, bytes, small) {
            state.cache.newest = addr;
            return Some(addr);
        }
        if state.cache.last_freed.block.is_some() {
            let last = &state.arena[state.cache.last_freed.block];
            if last.size == size && last.list == list {
                if state.cache.quick.wants(list, size) {
                    return Some(state.take_unmerged::<MANY>(small, counted, bytes, stream));
                }
                if let Some(addr) = state.take_back(list, counted, bytes, stream) {
                    return Some(addr);
                }
            }
            state.keep_last_freed();
        }
        if state.cache.quick.is_on()
            && !asked
            && let Some(addr) = state.take_kept::<MANY>(list, size, counted, bytes)
        {
            return Some(addr);
        }
        if virtual_memory {
            return state.serve_virtual(bytes, counted, size, stream, list);
        }
        let id = state.lists[list].free.take_best(&mut state.arena, size)?;
        Some(state.hand_out_part::<false>(id, list, size, 0, bytes))
    }
}

impl State {
    /// A large block where the plan that is followed has it, if that is free.
    #[inline(never)]
    fn serve_expected(&mut self, bytes: usize, pad: usize, stream: StreamKey) -> Option<usize> {
        // Blocks that are unread are in nobody's list.
        if !self.planning.has_table() || self.cache.marking {
            return None;
        }
        if self.cache.bounce.block.is_some() {
            self.end_bounce();
        }
        if self.cache.last_freed.block.is_some() {
            self.keep_last_freed();
        }
        let request = self.request(bytes, pad, stream, PoolId::DEFAULT);
        let (id, addr) = self.expected_at(&request)?;
        if self.asking && !self.events.traffic.pass() {
            return None;
        }
        self.note_expected(&request);
        Some(self.hand_out_at(id, addr, &request, None))
    }

    /// Hands the block freed last out again as it lies, if that is where a best fit would lead after it has merged
    /// with its neighbours. Returns its address.
    #[inline(never)]
    fn take_back(
        &mut self,
        list: ListId,
        counted: usize,
        requested: usize,
        stream: StreamKey,
    ) -> Option<usize> {
        let id = self.cache.last_freed.block;
        let block = &self.arena[id];
        debug_assert_eq!(block.list, list);
        let size = block.size;
        let (addr, split) = (block.addr, block.is_split());
        let (prev, next) = (block.prev, block.next);
        if self.arena.free_size(prev).is_some() {
            return None;
        }
        let (small, virtual_memory) = (list.is_small(), list.is_virtual());
        let free = &self.lists[list].free;
        // What merging would have changed in the inactive splits; the allocation takes it back.
        let (blocks, bytes) = match self.arena.free_size(next) {
            None => {
                if free.next_size(size, BlockId::NONE) == Some(size)
                    || virtual_memory && self.larger_instead(list, size, next).is_some()
                {
                    return None;
                }
                (i64::from(split), if split { size as i64 } else { 0 })
            }
            Some(rest) => {
                let keeps_rest = small || virtual_memory || rest > SMALL_SIZE;
                let other = free.next_size(size, next);
                if !keeps_rest || other.is_some_and(|other| other <= size + rest) {
                    return None;
                }
                let unaligned = size >= ROUND_LARGE && addr % MAX_BASE_ALIGN != 0;
                let behind = self.arena[next].next;
                if virtual_memory
                    && (unaligned || self.larger_instead(list, size + rest, behind).is_some())
                {
                    return None;
                }
                if prev.is_some() || self.arena[next].next.is_some() {
                    (0, size as i64)
                } else {
                    (-1, -(rest as i64))
                }
            }
        };
        let (blocks, bytes) = if virtual_memory {
            (0, 0)
        } else {
            (blocks, bytes)
        };
        let counters = &mut self.stats.blocks;
        if !virtual_memory {
            counters.split_changed_and_back(small, blocks, bytes);
        }
        counters.handed_out(small, counted as i64, requested as i64);
        self.mark(id, addr, small);
        let block = &mut self.arena[id];
        block.state = BlockState::Live;
        block.requested = requested;
        block.slack = slack(size, counted);
        let freed = std::mem::replace(&mut self.cache.last_freed, LastFreed::NONE);
        self.begin_bounce(freed, addr, stream, requested, (blocks, bytes));
        self.note_beyond(slack(size, counted));
        Some(addr)
    }

    /// Splits what a request needs off a free block that has left its list, and makes it live: `size` bytes, of which
    /// the last `uncounted` are not the client's. Nothing limits splits, and no history is recorded. Returns its address.
    #[inline]
    fn hand_out_part<const VIRTUAL: bool>(
        &mut self,
        id: BlockId,
        list: ListId,
        size: usize,
        uncounted: usize,
        requested: usize,
    ) -> usize {
        let block = &mut self.arena[id];
        let (addr, whole, was_split) = (block.addr, block.size, block.is_split());
        // Memory of a virtual segment that was not handed out is as old as it was.
        let since = if VIRTUAL {
            block.free_since
        } else {
            self.tick as u32
        };
        block.state = BlockState::Live;
        block.flags = 0;
        block.requested = requested;
        block.slack = slack(uncounted, 0);
        let (small, rest) = (size <= SMALL_SIZE, whole - size);
        let least = if small || VIRTUAL {
            MIN_BLOCK_SIZE
        } else {
            SMALL_SIZE + 1
        };
        let (size, blocks, bytes) = if rest >= least {
            let back = self.arena.split_back(id, size);
            self.arena[back].free_since = since;
            self.lists[list].free.insert(&mut self.arena, back);
            if was_split {
                (size, 0, -(size as i64))
            } else {
                (size, 1, rest as i64)
            }
        } else if was_split {
            (whole, -1, -(whole as i64))
        } else {
            (whole, 0, 0)
        };
        if !VIRTUAL {
            self.stats.blocks.split_changed(small, blocks, bytes);
        }
        let counted = (size - uncounted) as i64;
        self.stats
            .blocks
            .handed_out(small, counted, requested as i64);
        self.live.insert(addr, id);
        if VIRTUAL && self.cache.quick.is_on() {
            self.cache.lookups.set(addr, id);
        }
        self.mark(id, addr, small);
        addr
    }

    /// A block of a virtual segment; of a fixed one, if there is none.
    #[inline(never)]
    pub(super) fn serve_virtual(
        &mut self,
        requested: usize,
        counted: usize,
        size: usize,
        stream: StreamKey,
        list: ListId,
    ) -> Option<usize> {
        let size = self.size_to_cut(counted, size);
        let found = self.best_virtual(list, size);
        if let Some(found) = found.or_else(|| self.merge_for(list, size)) {
            self.lists[list].free.remove(&mut self.arena, found);
            let id = if size < ROUND_LARGE {
                found
            } else {
                self.cut_to_alignment(found, list, size)
            };
            let uncounted = size - counted;
            return Some(self.hand_out_part::<true>(id, list, size, uncounted, requested));
        }
        let size = counted;
        let request = Request {
            requested,
            size,
            stream,
            pool: PoolId::DEFAULT,
            list,
            small: size <= SMALL_SIZE,
            no_split: false,
            virtual_memory: true,
            guest: false,
        };
        let id = self.find(&request)?;
        Some(self.hand_out(id, &request, None))
    }
}
