//! The bookkeeping of one device: pure, called under the device lock.

use crate::block::{AddrMap, BlockArena, BlockState};
use crate::config::Settings;
use crate::driver::{EventHandle, StreamToken};
use crate::ids::{BlockId, ListId, PoolId, SegmentId, StreamKey};
use crate::pool::FreeLists;
use crate::segment::{Segment, SegmentTable};
use crate::size::{MIN_BLOCK_SIZE, SMALL_SIZE};
use crate::stats::DeviceStats;
use crate::stream::{PendingEvents, StreamUses};

/// Names a block from the time it is handed out until its last use is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHandle {
    /// The block.
    pub block: BlockId,
    /// Its generation.
    pub generation: u16,
}

/// What the device lock protects. Invariants are listed in `docs/design.md` and verified by `check`.
pub(super) struct State {
    pub arena: BlockArena,
    /// Live blocks by address.
    pub live: AddrMap,
    pub lists: FreeLists,
    pub segments: SegmentTable,
    pub uses: StreamUses,
    pub pending: PendingEvents,
    /// Freed blocks whose events could not be recorded: they wait for a device synchronisation.
    pub unfenced: Vec<BlockId>,
    /// Events not in use.
    pub idle_events: Vec<EventHandle>,
    pub stats: DeviceStats,
    pub settings: Settings,
    /// What this process may reserve, bytes.
    pub limit: Option<usize>,
    /// Bytes that threads are asking the driver for right now, beyond `reserved_bytes`.
    pub growing: usize,
    /// Pending uses taken out of `pending` by a thread that waits for their events with the lock
    /// released, and uses whose events are being recorded.
    pub detached: usize,
    /// Counts frees. A segment idle since tick t holds no work submitted after t.
    pub tick: u64,
    /// Counts searches of the large default pool: garbage collection's clock.
    pub searches: u32,
}

/// A request on its way through the allocator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    /// Bytes the client asked for.
    pub requested: usize,
    /// Bytes the block will have at least.
    pub size: usize,
    pub stream: StreamKey,
    pub pool: PoolId,
    pub list: ListId,
    pub small: bool,
}

impl State {
    pub fn new(settings: Settings) -> Self {
        Self {
            arena: BlockArena::default(),
            live: AddrMap::default(),
            lists: FreeLists::default(),
            segments: SegmentTable::default(),
            uses: StreamUses::default(),
            pending: PendingEvents::default(),
            unfenced: Vec::new(),
            idle_events: Vec::new(),
            stats: DeviceStats::default(),
            settings,
            limit: None,
            growing: 0,
            detached: 0,
            tick: 0,
            searches: 0,
        }
    }

    /// Rounds a request and finds the list that serves it.
    #[inline]
    pub fn request(&mut self, bytes: usize, pad: usize, stream: StreamKey) -> Request {
        let size = self.settings.round_size(bytes, pad);
        let small = size <= SMALL_SIZE;
        let pool = PoolId::DEFAULT;
        let list = self.lists.of(pool, stream, small);
        Request { requested: bytes, size, stream, pool, list, small }
    }

    /// The best free block for the request, still in its list.
    #[inline]
    pub fn find(&mut self, request: &Request) -> Option<BlockId> {
        if !request.small {
            self.searches = self.searches.wrapping_add(1);
        }
        let id = self.lists[request.list].free.best_fit(request.size)?;
        let size = self.arena[id].size;
        let max_split = self.settings.max_split_size;
        if request.size < max_split {
            // An oversize block serves oversize requests only.
            return (size < max_split).then_some(id);
        }
        let room = self.settings.max_non_split_rounding_size;
        (size < request.size.saturating_add(room)).then_some(id)
    }

    /// Takes a free block for the request, splits it where that is worth it, and makes it live.
    /// Returns its address.
    #[inline]
    pub fn hand_out(&mut self, id: BlockId, request: &Request) -> usize {
        let small = request.small;
        self.lists[request.list].free.remove(&mut self.arena, id);
        let was_split = self.arena[id].is_split();
        let whole = self.arena[id].size;
        let rest = whole - request.size;
        let mut block = id;
        if self.worth_splitting(request, rest) {
            block = self.arena.split_front(id, request.size);
            let segment = self.arena[block].segment;
            if !self.arena[block].prev.is_some()
                && let Some(segment) = self.segments.get_mut(segment)
            {
                segment.first = block;
            }
            self.arena[id].free_since = self.searches;
            self.lists[request.list].free.insert(&mut self.arena, id);
            if was_split {
                self.stats.inactive_split_bytes.decrease(small, request.size as i64);
            } else {
                self.stats.inactive_split_bytes.increase(small, rest as i64);
                self.stats.inactive_split.increase(small, 1);
            }
        } else if was_split {
            self.stats.inactive_split_bytes.decrease(small, whole as i64);
            self.stats.inactive_split.decrease(small, 1);
        }
        self.make_live(block, request)
    }

    #[inline]
    fn worth_splitting(&self, request: &Request, rest: usize) -> bool {
        if request.small {
            rest >= MIN_BLOCK_SIZE
        } else {
            rest > SMALL_SIZE && request.size < self.settings.max_split_size
        }
    }

    #[inline]
    fn make_live(&mut self, id: BlockId, request: &Request) -> usize {
        let max_split = self.settings.max_split_size;
        let block = &mut self.arena[id];
        block.state = BlockState::Live;
        block.requested = request.requested;
        let (addr, size) = (block.addr, block.size as i64);
        if block.size >= max_split {
            block.oversize = true;
            self.stats.oversize_allocations.increase(1);
        }
        self.live.insert(addr, id);
        let stats = &mut self.stats;
        stats.allocation.increase(request.small, 1);
        stats.allocated_bytes.increase(request.small, size);
        stats.active.increase(request.small, 1);
        stats.active_bytes.increase(request.small, size);
        stats.requested_bytes.increase(request.small, request.requested as i64);
        addr
    }

    /// The client gave the block back: it leaves the live map and becomes pending.
    #[inline]
    pub fn retire(&mut self, id: BlockId) {
        let block = &mut self.arena[id];
        debug_assert_eq!(block.state, BlockState::Live);
        block.state = BlockState::Pending;
        let (size, list) = (block.size as i64, block.list);
        if block.oversize {
            block.oversize = false;
            self.stats.oversize_allocations.decrease(1);
        }
        let small = self.lists[list].small;
        self.stats.allocation.decrease(small, 1);
        self.stats.allocated_bytes.decrease(small, size);
        self.tick += 1;
    }

    /// The block a handle names: live, or waiting for events.
    pub fn resolve(&self, handle: BlockHandle) -> Option<BlockId> {
        let block = self.arena.get(handle.block)?;
        let active = matches!(block.state, BlockState::Live | BlockState::Pending);
        (active && block.generation == handle.generation).then_some(handle.block)
    }

    /// Takes the block's stream uses out.
    pub fn take_uses(&mut self, id: BlockId) -> Vec<StreamToken> {
        let block = &mut self.arena[id];
        let streams = self.uses.of(block).to_vec();
        self.uses.release(block);
        streams
    }

    /// No stream uses the block any more: it merges with free neighbours and returns to its list.
    #[inline]
    pub fn complete_free(&mut self, id: BlockId) {
        let block = &mut self.arena[id];
        debug_assert_eq!((block.state, block.events), (BlockState::Pending, 0));
        let (size, requested, list) = (block.size as i64, block.requested as i64, block.list);
        let (prev, next) = (block.prev, block.next);
        block.requested = 0;
        block.generation = block.generation.wrapping_add(1);
        let small = self.lists[list].small;

        let mut merged = id;
        let (mut blocks, mut bytes) = (0, 0);
        if let Some(next) = next.some()
            && self.arena[next].state == BlockState::Free
        {
            blocks -= 1;
            bytes -= self.arena[next].size as i64;
            self.lists[list].free.remove(&mut self.arena, next);
            self.arena.merge_right(merged, next);
        }
        if let Some(prev) = prev.some()
            && self.arena[prev].state == BlockState::Free
        {
            blocks -= 1;
            bytes -= self.arena[prev].size as i64;
            self.lists[list].free.remove(&mut self.arena, prev);
            self.arena.merge_right(prev, merged);
            merged = prev;
        }
        let whole = &mut self.arena[merged];
        whole.free_since = self.searches;
        if whole.is_split() {
            blocks += 1;
            bytes += whole.size as i64;
        } else if let Some(segment) = self.segments.get_mut(whole.segment) {
            segment.idle_since = self.tick;
        }
        self.lists[list].free.insert(&mut self.arena, merged);

        let stats = &mut self.stats;
        stats.inactive_split.change(small, blocks);
        stats.inactive_split_bytes.change(small, bytes);
        stats.active.decrease(small, 1);
        stats.active_bytes.decrease(small, size);
        stats.requested_bytes.decrease(small, requested);
    }

    /// Takes in a new segment as one free block.
    pub fn add_segment(&mut self, addr: usize, size: usize, request: &Request) -> BlockId {
        let segment = self.segments.insert(Segment {
            addr,
            size,
            first: BlockId::NONE,
            stream: request.stream,
            pool: request.pool,
            small: request.small,
            idle_since: self.tick,
        });
        let id = self.arena.insert(addr, size, segment, request.list);
        if let Some(segment) = self.segments.get_mut(segment) {
            segment.first = id;
        }
        self.arena[id].free_since = self.searches;
        self.lists[request.list].free.insert(&mut self.arena, id);
        self.stats.segment.increase(request.small, 1);
        self.stats.reserved_bytes.increase(request.small, size as i64);
        self.stats.num_device_alloc += 1;
        if size >= self.settings.max_split_size {
            self.stats.oversize_segments.increase(1);
        }
        id
    }

    /// Takes a segment that is one free block out of the bookkeeping; `None` when it is in use.
    pub fn remove_segment(&mut self, id: SegmentId) -> Option<Segment> {
        let segment = self.segments.get(id)?;
        let block = segment.first;
        if self.arena[block].state != BlockState::Free || self.arena[block].is_split() {
            return None;
        }
        let segment = self.segments.remove(id)?;
        let list = self.arena[block].list;
        self.lists[list].free.remove(&mut self.arena, block);
        self.arena.remove(block);
        self.stats.segment.decrease(segment.small, 1);
        self.stats.reserved_bytes.decrease(segment.small, segment.size as i64);
        self.stats.num_device_free += 1;
        if segment.size >= self.settings.max_split_size {
            self.stats.oversize_segments.decrease(1);
        }
        Some(segment)
    }

    /// Puts a segment back that the driver refused to free.
    pub fn restore_segment(&mut self, segment: &Segment) {
        let list = self.lists.of(segment.pool, segment.stream, segment.small);
        let request = Request {
            requested: 0,
            size: segment.size,
            stream: segment.stream,
            pool: segment.pool,
            list,
            small: segment.small,
        };
        self.add_segment(segment.addr, segment.size, &request);
        self.stats.num_device_alloc -= 1;
        self.stats.num_device_free -= 1;
    }

    /// Bytes reserved from the driver.
    pub fn reserved(&self) -> usize {
        self.stats.reserved_bytes.current() as usize
    }
}
