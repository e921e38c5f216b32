//! Private pools and graph captures.

use std::collections::HashSet;

use crate::block::BlockState;
use crate::device::DeviceAllocator;
use crate::error::{AllocError, Result};
use crate::ids::{MempoolId, PoolId};

impl DeviceAllocator {
    /// Makes the pool with one user, or adds a user to it. `external`: its memory comes from an
    /// allocator of its own, which only a new pool can have. A capture into the pool may begin at once, before
    /// [`Self::mark_capture_begin`] tells of it: what is being obtained ahead is waited for.
    pub fn create_or_incref_pool(&self, id: MempoolId, external: bool) -> Result<()> {
        if id == MempoolId::DEFAULT {
            return Err(AllocError::PoolState {
                what: "not a private pool:",
                pool: id,
            });
        }
        let mut state = self.state.lock();
        self.settle_prefetched(&mut state);
        let Some(pool) = state.pools.find(id) else {
            state.pools.create(id, external);
            return Ok(());
        };
        if external {
            let what = "an allocator can only be given to a new pool, not to";
            return Err(AllocError::PoolState { what, pool: id });
        }
        match state.pools.get_mut(pool) {
            Some(private) if private.use_count > 0 => {
                private.use_count += 1;
                Ok(())
            }
            _ => Err(AllocError::PoolState {
                what: "pool is no longer in use:",
                pool: id,
            }),
        }
    }

    /// Takes a user away. Without users the pool's idle memory may go back to the driver.
    pub fn release_pool(&self, id: MempoolId) -> Result<()> {
        let mut state = self.state.lock();
        let pool = state
            .pools
            .find(id)
            .ok_or(AllocError::UnknownPool { pool: id })?;
        // Whoever read the clock before, and waits for the device, knows nothing of work submitted since.
        state.tick += 1;
        let tick = state.tick;
        match state.pools.get_mut(pool) {
            Some(private) if private.use_count > 0 => {
                private.use_count -= 1;
                private.released = tick;
                Ok(())
            }
            _ => Err(AllocError::PoolState {
                what: "pool was already released:",
                pool: id,
            }),
        }
    }

    /// Number of users of the pool.
    pub fn pool_use_count(&self, id: MempoolId) -> Result<u32> {
        let state = self.state.look();
        let pool = state
            .pools
            .find(id)
            .ok_or(AllocError::UnknownPool { pool: id })?;
        Ok(state.pools.get(pool).map_or(0, |pool| pool.use_count))
    }

    /// Opts a pool in or out of serving other requests before memory runs out.
    pub fn set_use_on_oom(&self, id: MempoolId, on: bool) {
        self.state.lock().pools.set_use_on_oom(id, on);
    }

    /// From now on the pool's blocks are handed out whole.
    pub fn set_no_split(&self, id: MempoolId) {
        self.state.lock().pools.set_no_split(id);
    }

    /// Whether the pool's live blocks are exactly `expected`.
    pub fn check_pool_live_allocations(
        &self,
        id: MempoolId,
        expected: &HashSet<usize>,
    ) -> Result<bool> {
        let state = self.state.look();
        let pool = state
            .pools
            .find(id)
            .ok_or(AllocError::UnknownPool { pool: id })?;
        let mut live = state
            .arena
            .iter()
            .filter(|(_, block)| block.state == BlockState::Live)
            .filter(|(_, block)| state.lists[block.list].pool == pool)
            .map(|(_, block)| block.addr);
        let count = live.try_fold(0, |count, addr| {
            expected.contains(&addr).then_some(count + 1)
        });
        Ok(count == Some(expected.len()))
    }

    /// A graph capture has started on the device.
    pub fn mark_capture_begin(&self) {
        let mut state = self.state.lock();
        state.captures += 1;
        self.settle_prefetched(&mut state);
    }

    /// A graph capture has ended.
    pub fn mark_capture_end(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.captures == 0 {
            return Err(AllocError::NoCapture { device: self.id() });
        }
        state.captures -= 1;
        Ok(())
    }

    /// Whether any thread is capturing on this device.
    pub fn is_capturing_anything(&self) -> bool {
        self.state.look().captures > 0
    }

    /// Whether the calling thread's stream is being captured.
    pub fn has_captures_underway(&self) -> bool {
        self.in_capture(&self.state.look())
    }

    /// Reserved bytes by private pool.
    pub fn reserved_by_pool(&self) -> Vec<(MempoolId, crate::stats::PoolStat)> {
        self.state
            .look()
            .pools
            .reserved()
            .map(|(id, stat)| (id, *stat))
            .collect()
    }

    /// Whether the pool exists (the default one always does).
    pub fn has_pool(&self, id: MempoolId) -> bool {
        id == MempoolId::DEFAULT
            || self
                .state
                .look()
                .pools
                .find(id)
                .is_some_and(PoolId::is_some)
    }
}
