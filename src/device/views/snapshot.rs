//! A picture of all memory held.

use std::sync::Arc;

use crate::block::BlockState;
use crate::device::DeviceAllocator;
use crate::device::state::State;
use crate::history::{Action, Context, TraceEntry};
use crate::ids::{BlockId, MempoolId, SegmentId, StreamKey};
use crate::page::PageTable;

/// A block in a snapshot. Sizes in bytes.
#[derive(Debug, Clone)]
pub struct BlockInfo {
    /// After rounding.
    pub size: usize,
    /// As asked for; 0 when inactive.
    pub requested: usize,
    /// Live.
    pub allocated: bool,
    /// Live, or waiting for events.
    pub active: bool,
    /// Where it was allocated.
    pub context: Option<Arc<Context>>,
}

/// A segment in a snapshot. Sizes in bytes.
#[derive(Debug, Clone)]
pub struct SegmentInfo {
    /// Start address.
    pub addr: usize,
    /// Bytes held.
    pub total_size: usize,
    /// Bytes asked for by the client, in active blocks.
    pub requested_size: usize,
    /// Bytes in live blocks.
    pub allocated_size: usize,
    /// Bytes in active blocks.
    pub active_size: usize,
    /// The stream that its blocks serve.
    pub stream: StreamKey,
    /// Large pool.
    pub large: bool,
    /// Size of its pages; `None` for a fixed segment.
    pub page_size: Option<usize>,
    /// Its pool.
    pub pool: MempoolId,
    /// Its blocks, left to right.
    pub blocks: Vec<BlockInfo>,
    /// Where it was obtained.
    pub context: Option<Arc<Context>>,
}

impl DeviceAllocator {
    /// Every segment (of one pool, unless `pool` is the default one), by address.
    pub fn snapshot(&self, pool: MempoolId) -> Vec<SegmentInfo> {
        let Some(mut state) = self.state.lock_if_sound() else {
            return self.state.look().describe(pool);
        };
        let infos = state.describe(pool);
        if state.history.active {
            let size = infos.iter().map(|info| info.active_size).sum();
            let stream = StreamKey(0);
            let action = Action::Snapshot;
            state.history.push(TraceEntry {
                action,
                addr: 0,
                size,
                stream,
                pool,
                context: None,
            });
        }
        self.unlock(state);
        infos
    }
}

impl State {
    fn describe(&self, pool: MempoolId) -> Vec<SegmentInfo> {
        let mut infos: Vec<SegmentInfo> = self
            .segments
            .iter()
            .filter(|(_, segment)| {
                pool == MempoolId::DEFAULT || self.pools.id_of(segment.pool) == pool
            })
            .flat_map(|(id, _)| self.describe_segment(id))
            .collect();
        infos.sort_unstable_by_key(|info| info.addr);
        infos
    }

    /// A fixed segment as one; a virtual one as one for each contiguous range of mapped memory with one stream.
    fn describe_segment(&self, id: SegmentId) -> Vec<SegmentInfo> {
        let mut infos: Vec<SegmentInfo> = Vec::new();
        let Some(segment) = self.segments.get(id) else {
            return infos;
        };
        let mut open = None;
        let mut next = segment.first;
        // Where the device is poisoned, links may go round in circles.
        let mut left = self.arena.len();
        while let Some(block_id) = next.some().filter(|_| left > 0) {
            left -= 1;
            let block = &self.arena[block_id];
            next = block.next;
            let mapped = !matches!(block.state, BlockState::Unmapped | BlockState::Busy);
            let stream = mapped.then(|| self.stream_of(block_id));
            if let Some(stream) = stream
                && open != Some(stream)
            {
                infos.push(SegmentInfo {
                    addr: block.addr,
                    total_size: 0,
                    requested_size: 0,
                    allocated_size: 0,
                    active_size: 0,
                    stream,
                    large: !segment.small,
                    page_size: segment.pages.as_ref().map(PageTable::page_size),
                    pool: self.pools.id_of(segment.pool),
                    blocks: Vec::new(),
                    context: self.history.segments.get(&id).cloned(),
                });
            }
            open = stream;
            if mapped && let Some(info) = infos.last_mut() {
                self.describe_block_in(info, block_id);
            }
        }
        infos
    }

    fn describe_block_in(&self, info: &mut SegmentInfo, id: BlockId) {
        let block = &self.arena[id];
        let allocated = block.state == BlockState::Live;
        let active = allocated || block.state == BlockState::Pending;
        let size = if active { block.counted() } else { block.size };
        info.total_size += block.size;
        if active {
            info.active_size += size;
            info.requested_size += block.requested;
        }
        if allocated {
            info.allocated_size += size;
        }
        // What a block has beyond what counts is shown as one part with the free block before or behind it.
        let before = info.blocks.last_mut();
        if let Some(free) = before.filter(|before| !active && !before.active) {
            free.size += size;
            return;
        }
        info.blocks.push(BlockInfo {
            size,
            requested: block.requested,
            allocated,
            active,
            context: self.history.blocks.get(&id).cloned(),
        });
        if size < block.size {
            info.blocks.push(BlockInfo {
                size: block.size - size,
                requested: 0,
                allocated: false,
                active: false,
                context: None,
            });
        }
    }
}
