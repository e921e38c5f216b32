//! The bookkeeping of one device: pure, called under the device lock. What happens to blocks and segments is in `blocks`; most
//! fields are parts whose types are in the folders that they belong to.

use crate::block::{AddrMap, BlockArena, BlockState};
use crate::config::Settings;
use crate::device::blocks::guests::Guests;
use crate::device::hot::cache::Cache;
use crate::device::hot::threads::Threads;
use crate::device::paging::physical::Paging;
use crate::device::planning::course::Planning;
use crate::device::policy::budget::Budget;
use crate::device::pools::sleepers::Sleep;
use crate::device::streams::waiting::Events;
use crate::history::History;
use crate::ids::{BlockId, ListId, PoolId, StreamKey};
use crate::pool::{FreeLists, PoolTable};
use crate::segment::SegmentTable;
use crate::stats::{Counters, Ladder};
use crate::stream::Fences;

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
    pub pools: PoolTable,
    pub segments: SegmentTable,
    pub stats: Counters,
    /// Counts frees: the clock of the device. A segment idle since tick t holds no work submitted
    /// after t; garbage collection takes it for age.
    pub tick: u64,
    /// An allocation has more to do than to take a block: history, events, limits on splits. Brought up
    /// to date whenever a guard of the lock is given back.
    pub attention: bool,
    /// Also a small one has while a plan is followed: history, events or limits on splits are the reason. Brought up to date
    /// with `attention`.
    pub asking: bool,
    /// Frees have more to do than to take a block back: history, requests that are noted. Brought up to date with
    /// `attention`.
    pub watched: bool,
    pub cache: Cache,
    pub threads: Threads,
    pub events: Events,
    /// How far streams have come: what may be unmapped without waiting.
    pub fences: Fences,
    /// Blocks that other streams than their own use.
    pub guests: Guests,
    pub paging: Paging,
    pub budget: Budget,
    /// What is known of programs that repeat themselves.
    pub planning: Planning,
    pub sleep: Sleep,
    /// Graph captures under way.
    pub captures: u32,
    /// Blocks in state `Busy`.
    pub busy: usize,
    /// How misses were served.
    pub ladder: Ladder,
    pub history: History,
    pub settings: Settings,
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
    /// The pool hands out blocks whole.
    pub no_split: bool,
    /// Served from virtual segments.
    pub virtual_memory: bool,
    /// Its list is another stream's.
    pub guest: bool,
}

impl State {
    pub fn new(settings: Settings) -> Self {
        let live = AddrMap::default();
        Self {
            arena: BlockArena::default(),
            lists: FreeLists::default(),
            pools: PoolTable::default(),
            segments: SegmentTable::default(),
            stats: Counters::default(),
            tick: 0,
            attention: true,
            asking: true,
            watched: false,
            cache: Cache::default(),
            threads: Threads::new(live.signals()),
            events: Events::default(),
            fences: Fences::default(),
            guests: Guests::default(),
            paging: Paging::default(),
            budget: Budget::default(),
            planning: Planning::default(),
            sleep: Sleep::default(),
            captures: 0,
            busy: 0,
            ladder: Ladder::default(),
            history: History::default(),
            settings,
            live,
        }
    }

    /// The block a handle names: live, or waiting for events.
    pub fn resolve(&self, handle: BlockHandle) -> Option<BlockId> {
        let block = self.arena.get(handle.block)?;
        let active = matches!(block.state, BlockState::Live | BlockState::Pending);
        (active && block.generation == handle.generation).then_some(handle.block)
    }

    /// Whether an allocation is to ask events, or to record them.
    #[inline]
    pub fn events_outstanding(&self) -> bool {
        let lazy = self.settings.multi_stream_lazy_reclaim;
        self.events.are_outstanding(lazy)
    }

    /// Puts the event of a block that was given back off.
    pub fn defer(&mut self, id: BlockId) {
        let block = &mut self.arena[id];
        block.events = 1;
        self.events.defer(id, block.size);
    }

    /// Whether the event of a block of `size` bytes may wait for those of others.
    pub fn may_defer(&self, size: usize) -> bool {
        let active = self.stats.blocks.active_bytes() as usize;
        self.events.may_defer(size, active)
    }

    /// Bytes of physical memory that serve no range, what is being obtained ahead included.
    pub fn idle_bytes(&self) -> usize {
        self.budget.ahead + self.paging.idle_bytes()
    }

    /// Bytes of pages that sleep: they count as reserved, but are with the driver.
    pub fn asleep_bytes(&self) -> usize {
        if self.sleep.pools.is_empty() {
            return 0;
        }
        let tables = self.segments.iter().filter_map(|(_, s)| s.pages.as_ref());
        tables.map(|pages| pages.asleep() * pages.page_size()).sum()
    }

    /// Bytes that count against what this process may hold, those that threads are obtaining included.
    pub fn held(&self) -> usize {
        self.reserved() + self.budget.growing - self.asleep_bytes()
    }

    /// Bytes held from the driver, idle physical memory included, and those that sleep.
    pub fn reserved(&self) -> usize {
        self.stats.reserved_bytes.current() as usize + self.idle_bytes()
    }
}
