//! What happens to a block: handed out, given back, reusable again. Pure.

use std::sync::Arc;

use crate::block::{BlockState, CONTEXT, DAMAGED, GUEST, Keep, OVERSIZE};
use crate::device::state::{Request, State};
use crate::history::{Action, Context, TraceEntry, caller};
use crate::ids::{BlockId, ListId};
use crate::size::{MIN_BLOCK_SIZE, SMALL_SIZE};
use crate::stream::Use;

impl State {
    /// Takes a free block for the request, splits it where that is worth it, and makes it live.
    /// Returns its address.
    #[inline]
    pub fn hand_out(
        &mut self,
        id: BlockId,
        request: &Request,
        context: Option<Arc<Context>>,
    ) -> usize {
        if request.guest {
            return self.hand_out_to_guest(id, request, &context);
        }
        let list = self.arena[id].list;
        let lists = &mut self.lists[list];
        lists.free.remove(&mut self.arena, id);
        if list.is_virtual() {
            return self.hand_out_virtual(id, request, context);
        }
        let whole = &self.arena[id];
        let (was_split, size) = (whole.is_split(), whole.size);
        let rest = size - request.size;
        let (blocks, bytes) = if self.worth_splitting(request, rest) {
            let back = self.arena.split_back(id, request.size);
            self.arena[back].free_since = self.tick as u32;
            self.lists[list].free.insert(&mut self.arena, back);
            if was_split {
                (0, -(request.size as i64))
            } else {
                (1, rest as i64)
            }
        } else if was_split {
            (-1, -(size as i64))
        } else {
            (0, 0)
        };
        self.stats
            .blocks
            .split_changed(request.small, blocks, bytes);
        self.make_live(id, request, context)
    }

    /// Splits `size` bytes off the front of a block that is in no list; the segment's first block stays
    /// known.
    #[inline]
    pub fn split_front(&mut self, id: BlockId, size: usize) -> BlockId {
        let front = self.arena.split_front(id, size);
        let block = &self.arena[front];
        if !block.prev.is_some()
            && let Some(segment) = self.segments.get_mut(block.segment)
        {
            segment.first = front;
        }
        front
    }

    #[inline]
    fn worth_splitting(&self, request: &Request, rest: usize) -> bool {
        if request.no_split {
            false
        } else if request.small {
            rest >= MIN_BLOCK_SIZE
        } else {
            rest > SMALL_SIZE && request.size < self.settings.max_split_size
        }
    }

    #[inline]
    pub fn make_live(
        &mut self,
        id: BlockId,
        request: &Request,
        context: Option<Arc<Context>>,
    ) -> usize {
        let max_split = self.settings.max_split_size;
        let block = &mut self.arena[id];
        block.state = BlockState::Live;
        block.requested = request.requested;
        block.slack = 0;
        block.flags &= !DAMAGED;
        let (addr, size) = (block.addr, block.size as i64);
        if block.size >= max_split {
            block.flags |= OVERSIZE;
            self.stats.oversize_allocations.increase(1);
        }
        self.live.insert(addr, id);
        if self.planning.is_noting() && !request.small {
            let list = self.arena[id].list;
            self.planning.born(request, addr, size as usize, list);
        }
        self.stats
            .blocks
            .handed_out(request.small, size, request.requested as i64);
        if self.history.active {
            if let Some(context) = &context {
                let before = self.history.blocks.insert(id, context.clone());
                self.history.bury(before);
                self.arena[id].flags |= CONTEXT;
            }
            self.trace(Action::Alloc, id, request.requested, context);
        } else if context.is_some() {
            // History was switched off meanwhile. Dropping it here could wait for the interpreter's lock, whose
            // holder may wait for the device's.
            self.history.bury(context);
        }
        addr
    }

    /// The client gave the block back: it leaves the live map and becomes pending.
    #[inline]
    pub fn retire(&mut self, id: BlockId, context: Option<&Arc<Context>>) {
        self.arena.marks.clear(id);
        let block = &mut self.arena[id];
        debug_assert_eq!(block.state, BlockState::Live);
        block.state = BlockState::Pending;
        let (size, list, requested) = (block.counted() as i64, block.list, block.requested);
        if block.flags & OVERSIZE != 0 {
            block.flags &= !OVERSIZE;
            self.stats.oversize_allocations.decrease(1);
        }
        let small = list.is_small();
        if self.planning.is_noting() && !small {
            let addr = self.arena[id].addr;
            self.planning.freed(addr);
        }
        self.stats.blocks.retired(small, size);
        self.tick += 1;
        if self.history.active {
            let context = context.or(self.history.blocks.get(&id)).cloned();
            self.trace(Action::FreeRequested, id, requested, context);
        }
    }

    /// Takes the block's stream uses out.
    pub fn take_uses(&mut self, id: BlockId) -> Vec<Use> {
        self.events.uses.take(&mut self.arena[id])
    }

    /// No stream uses the block any more: it merges with free neighbours and returns to its list.
    #[inline]
    pub fn complete_free(&mut self, id: BlockId, context: Option<&Arc<Context>>) {
        if let Some(list) = self.end_waiting(id, context) {
            self.return_to_list(id, list);
        }
    }

    /// As [`Self::complete_free`], while kept blocks may stay: it is kept, too, if its size is asked for.
    pub fn complete_free_keeping(&mut self, id: BlockId) {
        if let Some(list) = self.end_waiting(id, None)
            && !self.keep_completed(list, id)
        {
            self.return_to_list(id, list);
        }
    }

    /// Keeps a block that waited for other streams, if it may be. Its entry left the address map when it was freed.
    fn keep_completed(&mut self, list: ListId, id: BlockId) -> bool {
        let block = &self.arena[id];
        let (at, size) = (block.addr, block.size);
        let plain = block.flags == 0 && self.cache.quick.is_on();
        let kept = plain && self.cache.quick.keep(&mut self.arena, list, size, id) == Keep::Kept;
        if kept {
            self.live.insert(at, id);
            self.cache.lookups.set(at, id);
        }
        kept
    }

    /// Counts a block that no stream uses any more as free. Returns the list it is to return to, unless it does so by
    /// itself.
    #[inline]
    fn end_waiting(&mut self, id: BlockId, context: Option<&Arc<Context>>) -> Option<ListId> {
        if self.history.active {
            self.trace_completed(id, context);
        }
        let block = &mut self.arena[id];
        debug_assert_eq!((block.state, block.events), (BlockState::Pending, 0));
        let (size, requested, list) = (block.counted() as i64, block.requested as i64, block.list);
        block.requested = 0;
        block.generation = block.generation.wrapping_add(1);
        let small = list.is_small();
        self.stats.blocks.completed(small, size, requested);
        if self.arena[id].flags & GUEST != 0 {
            self.begin_return(id);
            return None;
        }
        Some(list)
    }

    /// When a free block was freed, on the device's clock.
    pub fn freed_at(&self, id: BlockId) -> u64 {
        let age = (self.tick as u32).wrapping_sub(self.arena[id].free_since);
        self.tick.saturating_sub(age.into())
    }

    /// A block that nobody uses merges with free neighbours and enters its list.
    #[inline]
    pub fn return_to_list(&mut self, id: BlockId, list: ListId) {
        if self.cache.quick.has_steps() {
            self.cache.returns.note(self.arena[id].size);
        }
        let (merged, mut blocks, mut bytes) = self.merge_neighbours(id, list);
        let whole = &mut self.arena[merged];
        whole.free_since = self.tick as u32;
        if whole.is_split() {
            blocks += 1;
            bytes += whole.size as i64;
        } else if let Some(segment) = self.segments.get_mut(whole.segment) {
            segment.idle_since = self.tick;
        }
        self.lists[list].free.insert(&mut self.arena, merged);
        if !list.is_virtual() {
            let small = list.is_small();
            self.stats.blocks.split_changed(small, blocks, bytes);
        }
    }

    /// Merges a block with its free neighbours, which leave their list. Returns the merged block and
    /// the change to the inactive split statistics.
    #[inline]
    pub fn merge_neighbours(&mut self, id: BlockId, list: ListId) -> (BlockId, i64, i64) {
        let arena = &mut self.arena;
        let free = &mut self.lists[list].free;
        let (prev, next) = (arena[id].prev, arena[id].next);
        let mut merged = id;
        let (mut blocks, mut bytes) = (0, 0);
        if let Some(size) = arena.free_size(next) {
            blocks -= 1;
            bytes -= size as i64;
            free.remove(arena, next);
            arena.merge_right(id, next);
        }
        if let Some(size) = arena.free_size(prev) {
            blocks -= 1;
            bytes -= size as i64;
            free.remove(arena, prev);
            arena.merge_right(prev, id);
            merged = prev;
        }
        (merged, blocks, bytes)
    }

    #[cold]
    fn trace_completed(&mut self, id: BlockId, context: Option<&Arc<Context>>) {
        let allocated = self.history.blocks.remove(&id);
        self.arena[id].flags &= !CONTEXT;
        let requested = self.arena[id].requested;
        let shown = context.cloned().or_else(caller).or(allocated.clone());
        self.trace(Action::FreeCompleted, id, requested, shown);
        self.history.bury(allocated);
    }

    /// Appends a trace entry about a block.
    #[cold]
    pub fn trace(
        &mut self,
        action: Action,
        id: BlockId,
        size: usize,
        context: Option<Arc<Context>>,
    ) {
        let block = &self.arena[id];
        let list = &self.lists[block.list];
        let pool = self.pools.id_of(list.pool);
        self.history.push(TraceEntry {
            action,
            addr: block.addr,
            size,
            stream: self.stream_of(id),
            pool,
            context,
        });
    }
}
