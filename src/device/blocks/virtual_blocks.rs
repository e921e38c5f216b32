//! Blocks of virtual segments: like others, but some are not backed by memory. Pure.
//!
//! ```text
//! reservation |------------------------------------------------------------------------|
//! pages       |  P  |  P  |  P  |     |     |  P  |                                      |
//! blocks      | live | free     | unmapped  | live|       unmapped (frontier)            |
//! ```
//!
//! An unmapped block starts and ends at page boundaries. A run of free and unmapped neighbours can serve
//! a request once its unmapped pages are mapped.

use std::ops::Range;
use std::sync::Arc;

use crate::block::BlockState;
use crate::device::state::{Request, State};
use crate::history::{Action, Context, TraceEntry};
use crate::ids::{BlockId, ListId, SegmentId};
use crate::page::PageTable;
use crate::segment::Segment;
use crate::size::{MIN_BLOCK_SIZE, ROUND_LARGE};

impl State {
    /// The best free block of a virtual segment; failing that, of a fixed one. A block that could grow
    /// into unmapped memory behind it counts as larger than it is: the next larger one is preferred.
    pub fn find_virtual(&self, request: &Request) -> Option<BlockId> {
        self.best_virtual(request.list, request.size).or_else(|| {
            let fixed = request.list.fixed();
            self.lists[fixed].free.best_fit(request.size)
        })
    }

    /// The best free block of a list of virtual segments.
    #[inline]
    pub fn best_virtual(&self, list: ListId, size: usize) -> Option<BlockId> {
        let best = self.lists[list].free.best_fit(size)?;
        let block = &self.arena[best];
        Some(
            self.larger_instead(list, block.size, block.next)
                .unwrap_or(best),
        )
    }

    /// The block to be taken instead of the best fit, of `size` bytes and followed by `next`.
    #[inline]
    pub fn larger_instead(&self, list: ListId, size: usize, next: BlockId) -> Option<BlockId> {
        if !self.arena.is_unmapped(next) {
            return None;
        }
        let larger = self.lists[list].free.best_fit(size + MIN_BLOCK_SIZE)?;
        (!self.arena.is_unmapped(self.arena[larger].next)).then_some(larger)
    }

    /// Makes a block of a virtual segment live; it is in no list. What is left over on either side
    /// stays free.
    pub fn hand_out_virtual(
        &mut self,
        id: BlockId,
        request: &Request,
        context: Option<Arc<Context>>,
    ) -> usize {
        let list = self.arena[id].list;
        let id = self.cut(id, list, request);
        self.make_live(id, request, context)
    }

    /// Cuts a block that is in no list to what a request gets. What is left over on either side is free.
    pub fn cut(&mut self, mut id: BlockId, list: ListId, request: &Request) -> BlockId {
        if request.size >= ROUND_LARGE {
            id = self.cut_to_alignment(id, list, request.size);
        }
        if !request.no_split {
            id = self.leave_end(id, list, request.size);
        }
        id
    }

    /// Cuts `size` bytes off a block that is in no list, what lies behind them becomes free.
    pub fn leave_end(&mut self, id: BlockId, list: ListId, size: usize) -> BlockId {
        if self.arena[id].size - size < MIN_BLOCK_SIZE {
            return id;
        }
        let front = self.split_front(id, size);
        self.lists[list].free.insert(&mut self.arena, id);
        front
    }

    /// Leaves the first bytes of a block that is in no list free, if any.
    #[inline]
    pub fn leave_front(&mut self, id: BlockId, list: ListId, bytes: usize) -> BlockId {
        if bytes == 0 {
            return id;
        }
        let block = &mut self.arena[id];
        block.flags = 0;
        let since = block.free_since;
        let rest = self.arena.split_back(id, bytes);
        self.arena[rest].free_since = since;
        self.lists[list].free.insert(&mut self.arena, id);
        rest
    }

    /// Takes in a reservation as one unmapped block.
    pub fn add_virtual_segment(
        &mut self,
        addr: usize,
        size: usize,
        page_size: usize,
        request: &Request,
    ) -> BlockId {
        let segment = self.segments.insert(Segment {
            addr,
            size,
            first: BlockId::NONE,
            stream: request.stream,
            pool: request.pool,
            small: request.small,
            pages: Some(PageTable::new(addr, page_size)),
            idle_since: self.tick,
        });
        self.pools.count_range(request.pool);
        let list = &mut self.lists[request.list];
        list.ranges += 1;
        list.least_page = list.least_page.min(page_size);
        let id = self.arena.insert(addr, size, segment, request.list);
        if let Some(segment) = self.segments.get_mut(segment) {
            segment.first = id;
        }
        self.arena[id].state = BlockState::Unmapped;
        self.lists[request.list].unmapped.insert(addr, id);
        id
    }

    /// Whether a segment is a range of addresses at which nothing is mapped, and nobody is changing that.
    pub fn is_empty_range(&self, id: SegmentId) -> bool {
        let Some(segment) = self.segments.get(id) else {
            return false;
        };
        let block = &self.arena[segment.first];
        let left = segment.pages.as_ref().map(PageTable::stale_count);
        left == Some(0) && block.state == BlockState::Unmapped && !block.is_split()
    }

    /// Takes a range of addresses at which nothing is mapped out of the bookkeeping; `None` if something is.
    pub fn remove_virtual_segment(&mut self, id: SegmentId) -> Option<Segment> {
        if !self.is_empty_range(id) {
            return None;
        }
        let block = self.segments.get(id)?.first;
        let context = self.history.segments.remove(&id);
        self.history.bury(context);
        let segment = self.segments.remove(id)?;
        let list = self.arena[block].list;
        self.lists[list].unmapped.remove(&segment.addr);
        self.arena.remove(block);
        self.pools.uncount_range(segment.pool);
        self.lists[list].ranges -= 1;
        self.planning.forget_range(id);
        Some(segment)
    }

    /// Puts a range back that the driver refused to release.
    pub fn restore_virtual_segment(&mut self, mut segment: Segment) {
        let own = self
            .lists
            .of(segment.pool, segment.stream, segment.small, true);
        let list = self
            .shared_list(segment.pool, segment.small, true)
            .unwrap_or(own);
        segment.stream = self.lists[list].stream;
        if let Some(pages) = &segment.pages {
            let size = pages.page_size();
            let list = &mut self.lists[list];
            list.least_page = list.least_page.min(size);
        }
        let (addr, size, pool) = (segment.addr, segment.size, segment.pool);
        let segment = self.segments.insert(segment);
        let id = self.arena.insert(addr, size, segment, list);
        if let Some(segment) = self.segments.get_mut(segment) {
            segment.first = id;
        }
        self.arena[id].state = BlockState::Unmapped;
        self.lists[list].unmapped.insert(addr, id);
        self.pools.count_range(pool);
        self.lists[list].ranges += 1;
    }

    /// Takes a free or unmapped block out of its list and marks it busy.
    pub fn occupy(&mut self, id: BlockId) {
        let list = self.arena[id].list;
        if self.arena[id].state == BlockState::Free {
            self.lists[list].free.remove(&mut self.arena, id);
        } else {
            debug_assert_eq!(self.arena[id].state, BlockState::Unmapped);
            let addr = self.arena[id].addr;
            self.lists[list].unmapped.remove(&addr);
        }
        self.arena[id].state = BlockState::Busy;
        self.busy += 1;
    }

    /// Marks part of a free or unmapped block busy, of an unmapped one whole pages; what is left on either side serves
    /// requests meanwhile.
    pub fn occupy_part(&mut self, id: BlockId, part: Range<usize>) -> BlockId {
        self.occupy(id);
        let offset = part.start - self.arena[id].addr;
        if offset > 0 {
            let left = self.split_busy(id, offset);
            self.settle(left);
        }
        if part.end == self.arena[id].end() {
            return id;
        }
        let busy = self.split_busy(id, part.len());
        self.settle(id);
        busy
    }

    /// Splits `size` bytes off the front of a busy block: both are busy, and as old as it was.
    fn split_busy(&mut self, id: BlockId, size: usize) -> BlockId {
        let since = self.arena[id].free_since;
        let front = self.split_front(id, size);
        let block = &mut self.arena[front];
        (block.state, block.free_since) = (BlockState::Busy, since);
        self.busy += 1;
        front
    }

    /// Ends a busy block: what the page table says is mapped becomes free, the rest unmapped; each part
    /// merges with its like. Returns the block that its end belongs to then.
    pub fn settle(&mut self, busy: BlockId) -> BlockId {
        debug_assert_eq!(self.arena[busy].state, BlockState::Busy);
        self.busy -= 1;
        let rest = busy;
        loop {
            let (addr, end) = (self.arena[rest].addr, self.arena[rest].end());
            let Some(pages) = self.pages_of(rest) else {
                return rest;
            };
            let (mapped, cut) = pages.alike_from(pages.page_of(addr));
            let cut = cut.map_or(end, |page| pages.addr_of(page));
            if cut >= end {
                return self.settle_part(rest, mapped);
            }
            let age = self.arena[rest].free_since;
            let part = self.split_front(rest, cut - addr);
            self.arena[part].free_since = age;
            self.settle_part(part, mapped);
        }
    }

    /// Returns the block that it merged into.
    fn settle_part(&mut self, id: BlockId, mapped: bool) -> BlockId {
        let list = self.arena[id].list;
        if mapped {
            self.arena[id].state = BlockState::Pending;
            let block = &self.arena[id];
            let free = [block.prev, block.next].into_iter().filter_map(|id| {
                let block = &self.arena[id.some()?];
                (block.state == BlockState::Free).then_some(block.free_since)
            });
            let latest = free.fold(block.free_since, |latest, since| self.later(latest, since));
            let (merged, _, _) = self.merge_neighbours(id, list);
            self.arena[merged].free_since = latest;
            self.lists[list].free.insert(&mut self.arena, merged);
            return merged;
        }
        let mut merged = id;
        let (prev, next) = (self.arena[id].prev, self.arena[id].next);
        if next.is_some() && self.arena[next].state == BlockState::Unmapped {
            let addr = self.arena[next].addr;
            self.lists[list].unmapped.remove(&addr);
            self.arena.merge_right(id, next);
        }
        if prev.is_some() && self.arena[prev].state == BlockState::Unmapped {
            self.arena.merge_right(prev, id);
            merged = prev;
        }
        self.arena[merged].state = BlockState::Unmapped;
        let addr = self.arena[merged].addr;
        self.lists[list].unmapped.insert(addr, merged);
        merged
    }

    /// The later of two times on the device's clock, which wraps.
    pub fn later(&self, one: u32, other: u32) -> u32 {
        let now = self.tick as u32;
        if now.wrapping_sub(one) <= now.wrapping_sub(other) {
            one
        } else {
            other
        }
    }

    /// The page table of a block's segment.
    pub fn pages_of(&self, id: BlockId) -> Option<&PageTable> {
        self.segments.get(self.arena[id].segment)?.pages.as_ref()
    }

    /// The page table of a segment, to change it.
    pub fn pages_mut(&mut self, segment: SegmentId) -> Option<&mut PageTable> {
        self.segments.get_mut(segment)?.pages.as_mut()
    }

    /// Counts pages, in ascending order, that a block gained or lost, and traces each run of them.
    pub fn count_pages(
        &mut self,
        id: BlockId,
        changed: &[usize],
        action: Action,
        context: Option<Arc<Context>>,
    ) {
        let list = self.arena[id].list;
        let Some(pages) = self.pages_of(id) else {
            return;
        };
        let page_size = pages.page_size();
        let runs: Vec<(usize, usize)> = changed
            .chunk_by(|one, next| one + 1 == *next)
            .map(|run| (pages.addr_of(run[0]), run.len() * page_size))
            .collect();
        let bytes = (changed.len() * page_size) as i64;
        let (small, pool) = (list.is_small(), self.lists[list].pool);
        let mapped = action == Action::SegmentMap;
        if mapped {
            self.stats.reserved_bytes.increase(small, bytes);
        } else {
            self.stats.reserved_bytes.decrease(small, bytes);
        }
        self.pools
            .count_mapped(pool, small, if mapped { bytes } else { -bytes });
        for (addr, size) in runs {
            self.trace_range(action, list, addr, size, context.clone());
        }
    }

    /// Appends a trace entry about a range of a virtual segment.
    pub fn trace_range(
        &mut self,
        action: Action,
        list: ListId,
        addr: usize,
        size: usize,
        context: Option<Arc<Context>>,
    ) {
        if self.history.active {
            let (stream, pool) = (self.lists[list].stream, self.lists[list].pool);
            let pool = self.pools.id_of(pool);
            self.history.push(TraceEntry {
                action,
                addr,
                size,
                stream,
                pool,
                context,
            });
        }
    }
}
