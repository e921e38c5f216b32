//! The bookkeeping of one device: pure, called under the device lock. The transitions of blocks are in
//! `transitions`, those of segments in `segments`.

use std::sync::Arc;

use crate::block::{AddrMap, BlockArena, BlockState, Lookups, QuickLists, Returns};
use crate::config::{ExpandableSegments, Settings};
use crate::device::hot::bounce::Bounce;
use crate::device::hot::crowd::Crowd;
use crate::device::hot::freeing::LastFreed;
use crate::device::hot::unread::{MANY, Unread};
use crate::device::paging::probe::Probe;
use crate::device::planning::course::Planning;
use crate::device::policy::target::{Climbing, Needed};
use crate::device::streams::guest::Guests;
use crate::driver::{EventHandle, StreamToken};
use crate::history::History;
use crate::ids::{BlockId, ListId, PoolId, StreamKey};
use crate::lease::Leases;
use crate::page::{PageNumbers, PagePool};
use crate::pool::{FreeLists, PoolTable};
use crate::segment::SegmentTable;
use crate::signals::Signals;
use crate::size::SMALL_SIZE;
use crate::stats::{Counters, Ladder};
use crate::stream::{Fences, PendingEvents, StreamUses, Traffic};

/// Bytes of blocks whose events are put off: up to this, or up to a part of what is active ([`Pace::share`]).
///
/// [`Pace::share`]: crate::stream::Pace::share
const DEFERRED_BYTES: usize = 16 << 20;
/// With `multi_stream_lazy_reclaim` an allocation that is served from cache asks only when more events than these are
/// outstanding (the stock allocator's number): without a bound they would become more and more.
const LAZY_EVENTS: usize = 512;

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
    /// The block whose free is not finished; always finished while a guard of the lock is held.
    pub last_freed: LastFreed,
    /// The blocks freed after that one without a look at them; none while a guard of the lock is held. Their state is
    /// `Live` still, they are in no list, their entries in the address map are still there, and of all statistics only
    /// the number of allocations has counted them as free.
    pub unread: Unread,
    /// The address that was handed out last while a block was unread.
    pub newest: usize,
    /// Blocks are kept, and there are many, so that live ones are marked.
    pub marking: bool,
    /// Blocks from which on there are many: [`MANY`].
    pub many: usize,
    /// Freed blocks that are kept as they are; none while a guard of the lock is held, unless that was taken by
    /// [`Mutex::lock_keeping`]. Their state is `Kept`, their entries are still in the address map, and all
    /// statistics have counted them as free.
    ///
    /// [`Mutex::lock_keeping`]: crate::sync::Mutex::lock_keeping
    pub quick: QuickLists,
    /// Sizes that come back: requests of others get blocks of their own size.
    pub returns: Returns,
    /// Where blocks are kept and few, the ones found at addresses of late.
    pub lookups: Lookups,
    /// Told what threads are to know before they take the lock.
    pub signals: Arc<Signals>,
    /// What threads do by themselves.
    pub leases: Arc<Leases>,
    /// Some lease has begun; never while a guard of the lock is held. `attention` is set then.
    pub leasing: bool,
    pub crowd: Crowd,
    /// The ticks when room was last made for other small blocks, and for large ones.
    pub room_made: [u64; 2],
    /// The block that was last handed out right after it was freed, as it lay.
    pub returned: BlockId,
    /// Never there while a guard of the lock is held.
    pub bounce: Bounce,
    /// An allocation has more to do than to take a block: history, events, limits on splits. Brought up
    /// to date whenever a guard of the lock is given back.
    pub attention: bool,
    /// Frees have more to do than to take a block back: history, requests that are noted. Brought up to date with
    /// `attention`.
    pub watched: bool,
    pub arena: BlockArena,
    /// Live blocks by address.
    pub live: AddrMap,
    pub lists: FreeLists,
    pub pools: PoolTable,
    pub segments: SegmentTable,
    pub uses: StreamUses,
    pub pending: PendingEvents,
    /// Freed blocks whose events could not be recorded, and the tick when that was: they wait for a device
    /// synchronisation that begins later.
    pub unfenced: Vec<(BlockId, u64)>,
    /// Freed blocks whose events are still to be recorded: those freed during a graph capture, once it has
    /// ended; others while the [`Traffic`] is heavy.
    pub deferred: Vec<BlockId>,
    /// Room for what [`DeviceAllocator::fence_deferred`] works on.
    ///
    /// [`DeviceAllocator::fence_deferred`]: super::DeviceAllocator::fence_deferred
    pub to_fence: Vec<(StreamToken, BlockId)>,
    /// Bytes in blocks that were deferred.
    pub deferred_bytes: usize,
    /// How much there is to do with events.
    pub traffic: Traffic,
    /// Graph captures under way.
    pub captures: u32,
    /// Events not in use.
    pub idle_events: Vec<EventHandle>,
    pub stats: Counters,
    /// How misses were served.
    pub ladder: Ladder,
    pub history: History,
    pub settings: Settings,
    /// What this process may reserve, bytes.
    pub limit: Option<usize>,
    /// The same as a share of the device's memory, from the settings, until the device has been asked for that.
    pub share: Option<f64>,
    /// Bytes that threads are asking the driver for right now, beyond `reserved_bytes`.
    pub growing: usize,
    /// Bytes ordered ahead of need and not taken in yet.
    pub ahead: usize,
    /// Pending uses taken out of `pending` by a thread that waits for their events with the lock
    /// released, and uses whose events are being recorded.
    pub detached: usize,
    /// How often what was pending was given up: whoever waited meanwhile for an event of before has nothing to put back.
    pub resets: u64,
    /// Requests for memory that came to nothing, and gave back what they had got.
    pub failed_growths: u64,
    /// How often memory was short, so that the device was waited for.
    pub shortages: u64,
    /// New segments are virtual.
    pub virtual_memory: bool,
    /// Whether they are depends on a try of the driver that is still to be made.
    pub engine_open: bool,
    /// Whether the driver maps memory at all; unknown until it was tried.
    pub maps: Option<bool>,
    /// Physical memory that backs no address.
    pub pages: PagePool,
    /// Numbers of the handles that were ever mapped.
    pub numbers: PageNumbers,
    /// Whether the driver maps one handle at two addresses; unknown until it was tried.
    pub aliasing: Option<bool>,
    /// What is left of a try that could not be undone.
    pub probe: Option<Probe>,
    /// Pools whose memory is with the driver for now.
    pub asleep: Vec<PoolId>,
    /// A thread puts pages to sleep, or wakes them.
    pub beds_change: bool,
    /// Mappings left behind by pages that moved.
    pub stale: usize,
    /// Blocks that other streams than their own use.
    pub guests: Guests,
    /// How far streams have come: what may be unmapped without waiting.
    pub fences: Fences,
    /// What pages under large blocks have at the most, bytes, by how large these are; unknown until there are some.
    pub page_by_blocks: Option<usize>,
    /// Bytes of the device, as of the last reservation of addresses.
    pub total: usize,
    /// The driver had no addresses when it was last asked, and has got none back since.
    pub addresses_short: bool,
    /// The driver had no physical memory when it was last asked.
    pub device_full: bool,
    /// The most that was needed at once, as of the last time memory was mapped.
    pub most: Needed,
    pub climbing: Climbing,
    /// Bytes in pages that moved although the device had more.
    pub moved: usize,
    /// The most that was active on a full device at once, with what was free then but could not move.
    pub most_full: usize,
    /// What is known of programs that repeat themselves.
    pub planning: Planning,
    /// Blocks in state `Busy`.
    pub busy: usize,
    /// Counts frees: the clock of the device. A segment idle since tick t holds no work submitted
    /// after t; garbage collection takes it for age.
    pub tick: u64,
    /// Bytes that threads are giving back to the driver right now.
    pub leaving: usize,
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
            last_freed: LastFreed::NONE,
            unread: Unread::default(),
            newest: 0,
            marking: false,
            many: MANY,
            quick: QuickLists::default(),
            returns: Returns::default(),
            lookups: Lookups::default(),
            signals: live.signals(),
            leases: Arc::default(),
            leasing: false,
            crowd: Crowd::default(),
            room_made: [0; 2],
            returned: BlockId::NONE,
            bounce: Bounce::NONE,
            attention: true,
            watched: false,
            arena: BlockArena::default(),
            live,
            lists: FreeLists::default(),
            pools: PoolTable::default(),
            segments: SegmentTable::default(),
            uses: StreamUses::default(),
            pending: PendingEvents::default(),
            unfenced: Vec::new(),
            deferred: Vec::new(),
            to_fence: Vec::new(),
            deferred_bytes: 0,
            traffic: Traffic::default(),
            captures: 0,
            idle_events: Vec::new(),
            stats: Counters::default(),
            ladder: Ladder::default(),
            history: History::default(),
            settings,
            limit: None,
            share: None,
            growing: 0,
            ahead: 0,
            resets: 0,
            failed_growths: 0,
            shortages: 0,
            virtual_memory: false,
            engine_open: false,
            maps: None,
            pages: PagePool::default(),
            numbers: PageNumbers::default(),
            aliasing: None,
            probe: None,
            asleep: Vec::new(),
            beds_change: false,
            stale: 0,
            guests: Guests::default(),
            fences: Fences::default(),
            page_by_blocks: None,
            addresses_short: false,
            device_full: false,
            most: Needed::default(),
            climbing: Climbing::default(),
            most_full: 0,
            planning: Planning::default(),
            moved: 0,
            busy: 0,
            detached: 0,
            tick: 0,
            leaving: 0,
            total: 0,
        }
    }

    /// Rounds a request and finds the list that serves it.
    #[inline]
    pub fn request(
        &mut self,
        bytes: usize,
        pad: usize,
        stream: StreamKey,
        pool: PoolId,
    ) -> Request {
        let size = self.settings.round_size(bytes, pad);
        let small = size <= SMALL_SIZE;
        let no_split =
            pool != PoolId::DEFAULT && self.pools.get(pool).is_some_and(|pool| pool.no_split);
        // Where nobody asked for virtual segments, blocks that are never split are segments, which don't merge.
        let asked = self.settings.expandable_segments == ExpandableSegments::On;
        let virtual_memory = self.virtual_memory && (asked || !no_split);
        let own = self.lists.of(pool, stream, small, virtual_memory);
        let list = self.shared_list(pool, small, virtual_memory).unwrap_or(own);
        let guest = self.lists[list].stream != stream;
        Request {
            requested: bytes,
            size,
            stream,
            pool,
            list,
            small,
            no_split,
            virtual_memory,
            guest,
        }
    }

    /// The best free block for the request, still in its list.
    #[inline]
    pub fn find(&self, request: &Request) -> Option<BlockId> {
        if request.guest {
            return self.find_as_guest(request);
        }
        let id = if request.virtual_memory {
            self.find_virtual(request)?
        } else {
            self.lists[request.list].free.best_fit(request.size)?
        };
        let size = self.arena[id].size;
        let max_split = self.settings.max_split_size;
        if request.size < max_split {
            // An oversize block serves oversize requests only.
            return (size < max_split).then_some(id);
        }
        let room = self.settings.max_non_split_rounding_size;
        (size < request.size.saturating_add(room)).then_some(id)
    }

    /// The block a handle names: live, or waiting for events.
    pub fn resolve(&self, handle: BlockHandle) -> Option<BlockId> {
        let block = self.arena.get(handle.block)?;
        let active = matches!(block.state, BlockState::Live | BlockState::Pending);
        (active && block.generation == handle.generation).then_some(handle.block)
    }

    /// Whether blocks wait for events, recorded or not.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.pending.is_empty() || !self.deferred.is_empty()
    }

    /// Whether an allocation is to ask events, or to record them.
    #[inline]
    pub fn events_outstanding(&self) -> bool {
        let lazy = self.settings.multi_stream_lazy_reclaim;
        let least = if lazy { LAZY_EVENTS } else { 0 };
        self.pending.len() + self.deferred.len() > least
    }

    /// Puts the event of a block that was given back off.
    pub fn defer(&mut self, id: BlockId) {
        let block = &mut self.arena[id];
        block.events = 1;
        self.deferred_bytes += block.size;
        self.deferred.push(id);
        self.traffic.note();
    }

    /// Whether the event of a block of `size` bytes may wait for those of others.
    pub fn may_defer(&self, size: usize) -> bool {
        let active = self.stats.blocks.active_bytes() as usize;
        let pace = self.traffic.pace();
        let most = (active / pace.share).max(DEFERRED_BYTES);
        self.traffic.is_heavy()
            && self.deferred.len() + 1 < pace.blocks
            && self.deferred_bytes + size <= most
    }

    /// Bytes of physical memory that serve no range, what is being obtained ahead included.
    pub fn idle_bytes(&self) -> usize {
        self.ahead + self.pages.bytes() + self.probe.as_ref().map_or(0, Probe::bytes)
    }

    /// Bytes of pages that sleep: they count as reserved, but are with the driver.
    pub fn asleep_bytes(&self) -> usize {
        if self.asleep.is_empty() {
            return 0;
        }
        let tables = self.segments.iter().filter_map(|(_, s)| s.pages.as_ref());
        tables.map(|pages| pages.asleep() * pages.page_size()).sum()
    }

    /// Bytes that count against what this process may hold, those that threads are obtaining included.
    pub fn held(&self) -> usize {
        self.reserved() + self.growing - self.asleep_bytes()
    }

    /// Bytes held from the driver, idle physical memory included, and those that sleep.
    pub fn reserved(&self) -> usize {
        self.stats.reserved_bytes.current() as usize + self.idle_bytes()
    }
}
