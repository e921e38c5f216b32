//! Questions about a device's memory.

use crate::block::BlockState;
use crate::device::DeviceAllocator;
use crate::device::state::{BlockHandle, State};
use crate::ids::{BlockId, MempoolId, StreamKey};
use crate::page::PageTable;
use crate::stats::{Counters, DeviceStats, Ladder};

/// A live block as seen from outside. Sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockView {
    /// Names the block until its last use is over.
    pub handle: BlockHandle,
    /// Its start.
    pub addr: usize,
    /// Its size after rounding.
    pub size: usize,
    /// What the client asked for.
    pub requested: usize,
    /// The stream it was allocated on.
    pub stream: StreamKey,
    /// Start of its segment.
    pub base_addr: usize,
    /// Size of its segment.
    pub base_size: usize,
    /// The pool that it lies in: with overflow not the one it was asked of.
    pub pool: MempoolId,
    /// Its segment is of the large pool.
    pub large: bool,
    /// Size of its segment's pages; `None` for a fixed segment.
    pub page_size: Option<usize>,
}

impl State {
    fn view(&self, id: BlockId) -> Option<BlockView> {
        let block = &self.arena[id];
        let segment = self.segments.get(block.segment)?;
        Some(BlockView {
            handle: BlockHandle {
                block: id,
                generation: block.generation,
            },
            addr: block.addr,
            size: block.counted(),
            requested: block.requested,
            stream: self.stream_of(id),
            base_addr: segment.addr,
            base_size: segment.size,
            pool: self.pools.id_of(self.lists[block.list].pool),
            large: !segment.small,
            page_size: segment.pages.as_ref().map(PageTable::page_size),
        })
    }
}

impl DeviceAllocator {
    /// Whether large blocks of all streams are in one list.
    pub fn shares_blocks(&self) -> bool {
        self.state.look().guests.shared.is_some()
    }

    /// The live block that starts at `addr`.
    pub fn describe_block(&self, addr: usize) -> Option<BlockView> {
        let state = self.state.look();
        state.view(state.live.get(addr, &state.arena)?)
    }

    /// The block of a handle: live, or waiting for events.
    pub fn describe_handle(&self, handle: BlockHandle) -> Option<BlockView> {
        let state = self.state.look();
        state.view(state.resolve(handle)?)
    }

    /// Bytes in free blocks, and the largest one's size.
    pub fn cache_info(&self) -> (usize, usize) {
        let state = self.state.look();
        let blocks = state.arena.iter().map(|(_, block)| block);
        let free = blocks.filter(|block| block.state == BlockState::Free);
        free.fold((0, 0), |(total, largest), block| {
            (total + block.size, largest.max(block.size))
        })
    }

    /// How requests were served that no free block fitted.
    pub fn ladder(&self) -> Ladder {
        self.state.look().ladder
    }

    /// The device's memory as the driver reports it; 0 where it can't tell.
    pub fn capacity(&self) -> usize {
        self.driver
            .memory_info(self.id)
            .map_or(0, |info| info.total)
    }

    /// Bytes of physical memory held that back no address.
    pub fn idle_physical_bytes(&self) -> usize {
        self.state.look().idle_bytes()
    }

    /// A copy of the statistics, and `max_split_size` (−1 for unlimited, as the stock allocator has it).
    pub fn stats(&self) -> (DeviceStats, i64) {
        let state = self.state.look();
        (state.stats.report(), state.settings.max_split_size as i64)
    }

    /// What `read` makes of the counters, of `max_split_size` (−1 for unlimited) and of the number of
    /// private pools with figures of their own. Called with the lock held.
    pub fn read_counters<T>(&self, read: impl FnOnce(&Counters, i64, usize) -> T) -> T {
        let state = self.state.look();
        let max_split_size = state.settings.max_split_size as i64;
        read(&state.stats, max_split_size, state.pools.reserved().len())
    }

    /// Forgets accumulated statistics.
    pub fn reset_accumulated_stats(&self) {
        let mut state = self.state.lock();
        state.stats.reset_accumulated();
        state.pools.reset_accumulated();
    }

    /// Peaks become the current values.
    pub fn reset_peak_stats(&self) {
        let mut state = self.state.lock();
        state.stats.reset_peak();
        state.pools.reset_peak();
    }

    /// Blocks in any state: live, free, waiting, and addresses without memory.
    pub fn block_count(&self) -> usize {
        self.state.look().arena.len()
    }

    /// Bytes of host memory the bookkeeping holds for blocks: room for the most that there ever were, until
    /// `empty_cache` gives some of it back.
    pub fn bookkeeping_bytes(&self) -> usize {
        let state = self.state.look();
        let lists = state.lists.iter().map(|(_, list)| list.free.heap_bytes());
        let found = state.live.heap_bytes() + state.cache.lookups.heap_bytes();
        let blocks = state.arena.heap_bytes() + found;
        blocks + lists.sum::<usize>() + state.threads.leases.heap_bytes()
    }
}
