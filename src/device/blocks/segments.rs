//! What happens to a segment: obtained, returned. Pure.

use std::sync::Arc;

use crate::block::BlockState;
use crate::device::state::{Request, State};
use crate::history::{Action, Context, caller};
use crate::ids::{BlockId, PoolId, SegmentId};
use crate::segment::Segment;

impl State {
    /// Takes in a new segment as one free block.
    pub fn add_segment(
        &mut self,
        addr: usize,
        size: usize,
        request: &Request,
        context: Option<&Arc<Context>>,
    ) -> BlockId {
        let segment = self.segments.insert(Segment {
            addr,
            size,
            first: BlockId::NONE,
            stream: request.stream,
            pool: request.pool,
            small: request.small,
            pages: None,
            idle_since: self.tick,
        });
        let list = request.list.fixed();
        let id = self.arena.insert(addr, size, segment, list);
        if let Some(segment) = self.segments.get_mut(segment) {
            segment.first = id;
        }
        self.lists[list].held += size;
        self.arena[id].free_since = self.tick as u32;
        self.lists[list].free.insert(&mut self.arena, id);
        self.stats.segment.increase(request.small, 1);
        self.stats
            .reserved_bytes
            .increase(request.small, size as i64);
        self.stats.num_device_alloc += 1;
        if size >= self.settings.max_split_size {
            self.stats.oversize_segments.increase(1);
        }
        self.pools
            .count_segment(request.pool, request.small, size as i64);
        if self.history.active {
            if let Some(context) = context {
                self.history.segments.insert(segment, context.clone());
            }
            self.trace(Action::SegmentAlloc, id, size, context.cloned());
        }
        id
    }

    /// Takes a segment that is one free block out of the bookkeeping; `None` when it is in use.
    pub fn remove_segment(&mut self, id: SegmentId) -> Option<(Segment, Option<Arc<Context>>)> {
        let segment = self.segments.get(id)?;
        let block = segment.first;
        if segment.pages.is_some() {
            return None;
        }
        if self.arena[block].state != BlockState::Free || self.arena[block].is_split() {
            return None;
        }
        let size = segment.size;
        let own = self.history.segments.remove(&id);
        if self.history.active {
            let shown = caller().or(own.clone());
            self.trace(Action::SegmentFree, block, size, shown);
        }
        let segment = self.segments.remove(id)?;
        let list = self.arena[block].list;
        self.lists[list].free.remove(&mut self.arena, block);
        self.arena.remove(block);
        self.lists[list].held -= size;
        self.stats.segment.decrease(segment.small, 1);
        self.stats
            .reserved_bytes
            .decrease(segment.small, size as i64);
        self.stats.num_device_free += 1;
        // By the limit of now, as in the stock allocator: where that changed, what is left is off by as many.
        if size >= self.settings.max_split_size {
            self.stats.oversize_segments.decrease(1);
        }
        self.pools
            .count_segment(segment.pool, segment.small, -(size as i64));
        Some((segment, own))
    }

    /// Puts a segment back that the driver refused to free.
    pub fn restore_segment(&mut self, segment: &Segment, context: Option<&Arc<Context>>) {
        let list = self
            .lists
            .of(segment.pool, segment.stream, segment.small, false);
        let request = Request {
            requested: 0,
            size: segment.size,
            stream: segment.stream,
            pool: segment.pool,
            list,
            small: segment.small,
            no_split: false,
            virtual_memory: false,
            guest: false,
        };
        self.add_segment(segment.addr, segment.size, &request, context);
        let (small, size) = (segment.small, segment.size as i64);
        self.stats.segment.forget_move(small, 1);
        self.stats.reserved_bytes.forget_move(small, size);
        if segment.size >= self.settings.max_split_size {
            self.stats.oversize_segments.forget_move(1);
        }
        self.pools.forget_move(segment.pool, small, size);
        self.stats.num_device_alloc -= 1;
        self.stats.num_device_free -= 1;
    }

    /// Whether the block is all of its segment, and free.
    pub fn is_idle(&self, id: BlockId) -> bool {
        let block = &self.arena[id];
        block.state == BlockState::Free && !block.is_split()
    }

    /// The free block that holds `[addr, addr + size)` of a segment.
    pub fn free_block_at(&self, segment: SegmentId, addr: usize, size: usize) -> Option<BlockId> {
        let mut next = self.segments.get(segment)?.first;
        while let Some(id) = next.some() {
            if self.arena.holds_free(id, addr, size) {
                return Some(id);
            }
            next = self.arena[id].next;
        }
        None
    }

    /// Forgets private pools that nobody uses and that hold no memory.
    pub fn forget_empty_pools(&mut self) {
        let empty: Vec<PoolId> = self
            .pools
            .iter()
            .filter(|(_, pool)| pool.use_count == 0 && pool.segments == 0)
            .map(|(pool, _)| pool)
            .collect();
        for pool in empty {
            self.lists.remove_pool(pool);
            self.pools.remove(pool);
        }
    }
}
