//! Checkpoints of a private pool: its live blocks at one time, to be brought back at another (graph
//! trees).

use std::collections::HashMap;

use crate::block::{BlockState, NO_USES};
use crate::device::DeviceAllocator;
use crate::device::state::{Request, State};
use crate::error::{AllocError, Result};
use crate::ids::{BlockId, MempoolId, PoolId, SegmentId};

/// A live block in a checkpoint.
#[derive(Debug, Clone, Copy)]
struct Saved {
    addr: usize,
    size: usize,
    requested: usize,
}

/// The live blocks of a private pool.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    pool: MempoolId,
    blocks: Vec<Saved>,
}

/// What restoring a checkpoint did. An address may be in both lists.
#[derive(Debug, Clone, Default)]
pub struct Restored {
    /// Blocks that were live before.
    pub freed: Vec<usize>,
    /// Blocks that are live now.
    pub allocated: Vec<usize>,
}

impl DeviceAllocator {
    /// The live blocks of a pool, none of whose blocks may wait for events. One that was released may still have some.
    pub fn checkpoint(&self, id: MempoolId) -> Result<Checkpoint> {
        let mut state = self.state.lock();
        if !self.in_capture(&state) {
            self.fence_deferred(&mut state);
        }
        let pool = state.pool_to_checkpoint(id)?;
        let blocks = state
            .blocks_of(pool, BlockState::Live)
            .map(|block| Saved {
                addr: state.arena[block].addr,
                size: state.arena[block].size,
                requested: state.arena[block].requested,
            })
            .collect();
        self.unlock(state);
        Ok(Checkpoint { pool: id, blocks })
    }

    /// Frees every live block of the checkpoint's pool and makes the checkpoint's blocks live at their
    /// addresses. A pool that sleeps has to wake up first. On error nothing has changed.
    pub fn restore(&self, checkpoint: &Checkpoint) -> Result<Restored> {
        let mut state = self.state.lock();
        let pool = state.pool_to_checkpoint(checkpoint.pool)?;
        state.refuse_released(pool, checkpoint.pool)?;
        state.sleep.refuse(pool, self.id)?;
        let targets = state.places_of(pool, checkpoint)?;
        let live: Vec<BlockId> = state.blocks_of(pool, BlockState::Live).collect();
        if live.iter().any(|&id| state.arena[id].uses != NO_USES) {
            let what = "blocks are still used on other streams in pool";
            return Err(AllocError::PoolState {
                what,
                pool: checkpoint.pool,
            });
        }
        let mut restored = Restored::default();
        for id in live {
            let addr = state.arena[id].addr;
            restored.freed.push(addr);
            let state = &mut *state;
            state.live.remove(addr, &state.arena);
            state.retire(id, None);
            state.complete_free(id, None);
        }
        for (saved, segment) in checkpoint.blocks.iter().zip(targets) {
            if let Some(id) = state.free_block_at(segment, saved.addr, saved.size) {
                restored.allocated.push(state.carve(id, *saved));
            }
        }
        self.unlock(state);
        if restored.allocated.len() != checkpoint.blocks.len() {
            return Err(AllocError::Internal(
                "a checkpoint's block could not be restored".into(),
            ));
        }
        Ok(restored)
    }
}

impl State {
    /// The pool, if no event is outstanding in it.
    fn pool_to_checkpoint(&self, id: MempoolId) -> Result<PoolId> {
        let pool = self
            .pools
            .find(id)
            .ok_or(AllocError::UnknownPool { pool: id })?;
        if self.blocks_of(pool, BlockState::Pending).next().is_some() {
            let what = "Events should have synchronized when checkpointing block of pool";
            return Err(AllocError::PoolState { what, pool: id });
        }
        Ok(pool)
    }

    /// An error where the last one to use the pool has released it.
    fn refuse_released(&self, pool: PoolId, id: MempoolId) -> Result<()> {
        if self.pools.get(pool).is_none_or(|pool| pool.use_count == 0) {
            let what = "Not expected to checkpoint freeable graph";
            return Err(AllocError::PoolState { what, pool: id });
        }
        Ok(())
    }

    fn blocks_of(&self, pool: PoolId, wanted: BlockState) -> impl Iterator<Item = BlockId> + '_ {
        self.arena
            .iter()
            .filter(move |(_, block)| block.state == wanted)
            .filter(move |(_, block)| self.lists[block.list].pool == pool)
            .map(|(id, _)| id)
    }

    /// For each block of a checkpoint the segment that holds it; an error when one is not there, or another thread
    /// is changing its pages.
    fn places_of(&self, pool: PoolId, checkpoint: &Checkpoint) -> Result<Vec<SegmentId>> {
        let mut cover: HashMap<usize, SegmentId> = HashMap::new();
        let busy: Vec<BlockId> = self.blocks_of(pool, BlockState::Busy).collect();
        for saved in &checkpoint.blocks {
            let changing = |id: &BlockId| {
                let block = &self.arena[*id];
                block.addr < saved.addr + saved.size && saved.addr < block.end()
            };
            if busy.iter().any(changing) {
                let what = "another thread is changing a checkpointed block's memory in pool";
                return Err(AllocError::PoolState {
                    what,
                    pool: checkpoint.pool,
                });
            }
            let holder = self.segments.iter().find(|(_, segment)| {
                segment.pool == pool
                    && segment.addr <= saved.addr
                    && saved.addr + saved.size <= segment.addr + segment.size
                    && segment.pages.as_ref().is_none_or(|pages| {
                        pages
                            .touching(saved.addr, saved.addr + saved.size)
                            .all(|page| pages.is_mapped(page))
                    })
            });
            let Some((segment, _)) = holder else {
                let what = "a checkpointed block's memory is gone from pool";
                return Err(AllocError::PoolState {
                    what,
                    pool: checkpoint.pool,
                });
            };
            cover.insert(saved.addr, segment);
        }
        Ok(checkpoint
            .blocks
            .iter()
            .map(|saved| cover[&saved.addr])
            .collect())
    }

    /// Makes part of a free block live, at its own address and size.
    fn carve(&mut self, id: BlockId, saved: Saved) -> usize {
        let list = self.arena[id].list;
        let (small, virtual_memory) = (list.is_small(), list.is_virtual());
        let (stream, pool) = (self.lists[list].stream, self.lists[list].pool);
        let count = |state: &mut Self, id: BlockId, sign: i64| {
            if !virtual_memory && state.arena[id].is_split() {
                let size = state.arena[id].size as i64;
                state.stats.blocks.split_changed(small, sign, sign * size);
            }
        };
        count(self, id, -1);
        self.lists[list].free.remove(&mut self.arena, id);
        let offset = saved.addr - self.arena[id].addr;
        let mut leftovers = Vec::new();
        if offset > 0 {
            leftovers.push(self.split_front(id, offset));
        }
        let mut block = id;
        if self.arena[id].size > saved.size {
            block = self.split_front(id, saved.size);
            leftovers.push(id);
        }
        for left in leftovers {
            self.arena[left].free_since = self.tick as u32;
            self.lists[list].free.insert(&mut self.arena, left);
            count(self, left, 1);
        }
        let request = Request {
            requested: saved.requested,
            size: saved.size,
            stream,
            pool,
            list,
            small,
            no_split: false,
            virtual_memory,
            guest: false,
        };
        self.make_live(block, &request, None)
    }
}
