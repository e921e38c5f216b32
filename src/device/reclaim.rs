//! Returning cached memory to the driver.

use parking_lot::MutexGuard;

use super::DeviceAllocator;
use super::state::{Request, State};
use crate::error::Result;
use crate::ids::{MempoolId, PoolId, SegmentId};

impl DeviceAllocator {
    /// Returns idle segments to the driver, after everything submitted has finished: those of the
    /// default pool and of private pools out of use, or, with a pool given, only of that pool (and only
    /// when it is out of use). An unknown pool holds nothing.
    pub fn empty_cache(&self, pool: MempoolId) -> Result<()> {
        let mut state = self.state.lock();
        let outcome = self.release_idle(&mut state, None, pool);
        self.unlock(state);
        outcome
    }

    /// Waits for the device, reaps all events, then returns idle segments, oldest first: until `enough`
    /// bytes went back, or all of them. `pool` as for [`Self::empty_cache`].
    pub(super) fn release_idle(
        &self,
        state: &mut MutexGuard<'_, State>,
        enough: Option<usize>,
        pool: MempoolId,
    ) -> Result<()> {
        // Only what was idle before the wait is known to be out of use after it: work submitted by
        // other threads meanwhile may still run on what they freed. A segment that became idle since
        // then has a later tick and stays.
        let tick = state.tick;
        let unfenced = state.unfenced.clone();
        let everything = pool == MempoolId::DEFAULT;
        MutexGuard::unlocked(state, || {
            self.driver.synchronize_device(self.id)?;
            if everything {
                self.driver.release_external_caches(self.id)
            } else {
                Ok(())
            }
        })?;
        let capturing = self.in_capture(state);
        let only = state.pools.find(pool);
        if !capturing && (everything || only.is_some()) {
            self.fence_deferred(state);
            self.drain_events(state, unfenced, only)?;
        }
        let releasable = |of: PoolId| match state.pools.get(of) {
            None => everything && !capturing,
            Some(private) => private.use_count == 0 && (everything || private.id == pool),
        };
        let mut idle: Vec<(u64, SegmentId, usize)> = state
            .segments
            .iter()
            .filter(|(_, segment)| segment.idle_since <= tick && state.is_idle(segment.first))
            .filter(|(_, segment)| releasable(segment.pool))
            .map(|(id, segment)| (segment.idle_since, id, segment.size))
            .collect();
        idle.sort_unstable();
        let mut released = 0;
        for (_, id, size) in idle {
            if enough.is_some_and(|enough| released >= enough) {
                break;
            }
            if self.release_segment(state, id)? {
                released += size;
            }
        }
        state.forget_empty_pools();
        Ok(())
    }

    /// With `max_split_size` set: returns oversize blocks of the request's list, the best fit alone where
    /// one is large enough, otherwise the largest ones until they add up. True when enough went back.
    pub(super) fn release_oversize(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
    ) -> Result<bool> {
        let max_split = state.settings.max_split_size;
        if max_split == usize::MAX {
            return Ok(false);
        }
        let tick = state.tick;
        MutexGuard::unlocked(state, || self.driver.synchronize_device(self.id))?;
        let wanted = request.size.max(max_split);
        let list = &state.lists[request.list].free;
        let candidates: Vec<SegmentId> = match list.best_fit(wanted) {
            Some(id) => vec![state.arena[id].segment],
            None => {
                let mut ids: Vec<_> = list.iter(&state.arena).collect();
                ids.reverse();
                ids.retain(|id| state.arena[*id].size >= max_split);
                ids.into_iter().map(|id| state.arena[id].segment).collect()
            }
        };
        let mut released = 0;
        for id in candidates {
            if released >= wanted {
                break;
            }
            let Some(segment) = state.segments.get(id) else {
                continue;
            };
            let (size, settled) = (segment.size, segment.idle_since <= tick);
            if settled && self.release_segment(state, id)? {
                released += size;
            }
        }
        Ok(released >= wanted)
    }

    /// Returns one segment to the driver; false when it is in use. On failure it stays cached.
    pub(super) fn release_segment(
        &self,
        state: &mut MutexGuard<'_, State>,
        id: SegmentId,
    ) -> Result<bool> {
        let Some((segment, context)) = state.remove_segment(id, None) else {
            return Ok(false);
        };
        let pool = state
            .pools
            .get(segment.pool)
            .filter(|pool| pool.external)
            .map(|pool| pool.id);
        // The pool must be there if the segment has to come back.
        state.pools.hold(segment.pool);
        let freed = MutexGuard::unlocked(state, || match pool {
            Some(pool) => self.driver.pool_free(self.id, pool, segment.addr),
            None => self.driver.free(self.id, segment.addr),
        });
        state.pools.unhold(segment.pool);
        if let Err(error) = freed {
            state.restore_segment(&segment, context.as_ref());
            return Err(error.into());
        }
        state.history.bury(context);
        Ok(true)
    }
}
