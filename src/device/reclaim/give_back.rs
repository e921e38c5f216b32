//! Returning cached memory to the driver.

use crate::device::DeviceAllocator;
use crate::device::state::{Request, State};
use crate::error::Result;
use crate::history::Caller;
use crate::ids::{MempoolId, PoolId, SegmentId};
use crate::sync::MutexGuard;

/// The device has finished everything submitted before `tick`.
struct Settled {
    tick: u64,
    /// The pool concerned; the default one stands for all.
    pool: MempoolId,
    /// The calling thread captures: the default pool's memory may not be touched.
    capturing: bool,
}

impl Settled {
    /// Whether a pool's idle memory may be returned.
    fn allows(&self, state: &State, of: PoolId) -> bool {
        let everything = self.pool == MempoolId::DEFAULT;
        match state.pools.get(of) {
            None => everything && !self.capturing,
            Some(private) => {
                private.use_count == 0
                    && private.released <= self.tick
                    && (everything || private.id == self.pool)
            }
        }
    }
}

impl DeviceAllocator {
    /// Returns idle memory to the driver, after everything submitted has finished: that of the default
    /// pool and of private pools out of use, or, with a pool given, only of that pool (and only when it
    /// is out of use). An unknown pool holds nothing.
    pub fn empty_cache(&self, pool: MempoolId) -> Result<()> {
        let mut state = self.state.lock();
        let outcome = self.empty(&mut state, pool, true);
        self.unlock(state);
        outcome
    }

    /// Unmaps idle memory of virtual segments and keeps the physical memory for reuse at any address;
    /// returns idle fixed segments to the driver.
    pub fn empty_virtual_cache(&self) -> Result<()> {
        let mut state = self.state.lock();
        let outcome = self.empty(&mut state, MempoolId::DEFAULT, false);
        self.unlock(state);
        outcome
    }

    pub(in crate::device) fn empty(
        &self,
        state: &mut MutexGuard<'_, State>,
        pool: MempoolId,
        free_physical: bool,
    ) -> Result<()> {
        let counts = pool == MempoolId::DEFAULT || state.pools.find(pool).is_some();
        let settled = self.settle_device(state, pool)?;
        state.stats.num_sync_all_streams += i64::from(counts);
        // First: a pool that is awake then gives back what of it was so all the time.
        state.return_guests();
        state.forget_sleeping(|state, of| settled.allows(state, of));
        self.release_fixed(state, None, &settled)?;
        let unmapped = self.unmap_idle(state, None, settled.tick, |state, of| {
            settled.allows(state, of)
        })?;
        // What fell asleep meanwhile.
        state.forget_sleeping(|state, of| settled.allows(state, of));
        let all = pool == MempoolId::DEFAULT;
        if all {
            self.drop_stale(state, None)?;
            self.finish_probe(state);
        }
        if free_physical {
            self.free_idle_pages(state, (!all).then_some(unmapped))?;
        }
        self.release_empty_ranges(state, pool)?;
        state.forget_empty_pools();
        if all {
            // As the client waits for the device anyway: what comes next works on bookkeeping that lies close together.
            state.arena.tidy();
            state.live.shrink();
            state.lists.shrink();
        }
        Ok(())
    }

    /// Makes room for a request: returns idle memory, oldest first, until `enough` bytes went back, or
    /// (`None`) all of it. Memory that a virtual request can use stays with the allocator.
    pub(in crate::device) fn make_room(
        &self,
        state: &mut MutexGuard<'_, State>,
        enough: Option<usize>,
        virtual_memory: bool,
    ) -> Result<()> {
        let settled = self.settle_device(state, MempoolId::DEFAULT)?;
        let allows = |state: &State, of| settled.allows(state, of);
        state.return_guests();
        state.forget_sleeping(allows);
        let mut left = enough;
        let take = |left: &mut Option<usize>, bytes: usize| {
            *left = left.map(|left| left.saturating_sub(bytes));
        };
        if !virtual_memory {
            let released = self.release_fixed(state, left, &settled)?;
            take(&mut left, released);
        }
        if left != Some(0) {
            let idle = state.paging.pages.bytes();
            take(&mut left, idle);
            let unmapped = self.unmap_idle(state, left, settled.tick, allows)?;
            take(&mut left, unmapped);
        }
        if virtual_memory && left != Some(0) {
            self.release_fixed(state, left, &settled)?;
        }
        if enough.is_none() {
            self.finish_probe(state);
        }
        if enough.is_none() || !virtual_memory {
            self.free_idle_pages(state, enough)?;
        }
        state.forget_empty_pools();
        Ok(())
    }

    /// Waits for the device and reaps the events of the pools concerned.
    fn settle_device(&self, state: &mut MutexGuard<'_, State>, pool: MempoolId) -> Result<Settled> {
        self.settle_prefetched(state);
        let everything = pool == MempoolId::DEFAULT;
        // Blocks whose events can be waited for return first: what returns after the clock was read counts as idle
        // since then.
        self.reap_settled(state, pool, None)?;
        // Only what was idle before the wait is known to be out of use after it: work submitted by
        // other threads meanwhile may still run on what they freed. What became idle since then has a
        // later tick and stays.
        let tick = state.tick;
        MutexGuard::unlocked(state, || {
            self.driver.synchronize_device(self.id)?;
            if everything {
                let _client = Caller::leave();
                self.driver.release_external_caches(self.id)
            } else {
                Ok(())
            }
        })?;
        state.fences.complete_all(tick);
        self.reap_settled(state, pool, Some(tick))?;
        let capturing = self.in_capture(state);
        Ok(Settled {
            tick,
            pool,
            capturing,
        })
    }

    /// Waits for the events of a pool's blocks (the default one stands for all), and returns the blocks; with the tick
    /// up to which the device was waited for, also those without an event. Nothing while the calling thread captures.
    fn reap_settled(
        &self,
        state: &mut MutexGuard<'_, State>,
        pool: MempoolId,
        tick: Option<u64>,
    ) -> Result<()> {
        let only = state.pools.find(pool);
        let concerned = pool == MempoolId::DEFAULT || only.is_some();
        if !concerned || self.in_capture(state) {
            return Ok(());
        }
        self.fence_deferred(state);
        self.drain_events(state, tick, only)
    }

    /// Returns idle fixed segments, oldest first: until `enough` bytes went back, or all of them.
    /// Returns the bytes.
    fn release_fixed(
        &self,
        state: &mut MutexGuard<'_, State>,
        enough: Option<usize>,
        settled: &Settled,
    ) -> Result<usize> {
        let mut idle: Vec<(u64, SegmentId, usize)> = state
            .segments
            .iter()
            .filter(|(_, segment)| segment.pages.is_none())
            .filter(|(_, segment)| segment.idle_since <= settled.tick)
            .filter(|(_, segment)| state.is_idle(segment.first))
            .filter(|(_, segment)| settled.allows(state, segment.pool))
            .map(|(id, segment)| (segment.idle_since, id, segment.size))
            .collect();
        idle.sort_unstable();
        let mut released = 0;
        for (_, id, size) in idle {
            if enough.is_some_and(|enough| released >= enough) {
                break;
            }
            let allowed = state
                .segments
                .get(id)
                .is_some_and(|s| settled.allows(state, s.pool));
            if allowed && self.release_segment(state, id, settled.tick)? {
                released += size;
            }
        }
        Ok(released)
    }

    /// With `max_split_size` set: returns oversize blocks of the request's list, the best fit alone where
    /// one is large enough, otherwise the largest ones until they add up. True when enough went back.
    pub(in crate::device) fn release_oversize(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
    ) -> Result<bool> {
        let max_split = state.settings.max_split_size;
        if max_split == usize::MAX {
            return Ok(false);
        }
        let tick = state.tick;
        if state.pools.is_of_graph(request.pool, tick) {
            return Ok(false);
        }
        MutexGuard::unlocked(state, || self.driver.synchronize_device(self.id))?;
        let wanted = request.size.max(max_split);
        let list = request.list.fixed();
        let list = &state.lists[list].free;
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
            let (size, pool) = (segment.size, segment.pool);
            if !state.pools.is_of_graph(pool, tick) && self.release_segment(state, id, tick)? {
                released += size;
            }
        }
        Ok(released >= wanted)
    }

    /// Returns one segment to the driver; false when it is in use, or was after `tick`, when the device was waited for:
    /// other threads may have used it while the lock was released for the one before it. On failure it stays cached.
    pub(in crate::device) fn release_segment(
        &self,
        state: &mut MutexGuard<'_, State>,
        id: SegmentId,
        tick: u64,
    ) -> Result<bool> {
        if state
            .segments
            .get(id)
            .is_none_or(|segment| segment.idle_since > tick)
        {
            return Ok(false);
        }
        let Some((segment, context)) = state.remove_segment(id) else {
            return Ok(false);
        };
        let pool = state
            .pools
            .get(segment.pool)
            .filter(|pool| pool.external)
            .map(|pool| pool.id);
        // The pool must be there if the segment has to come back.
        state.pools.hold(segment.pool);
        state.budget.leaving += segment.size;
        let freed = MutexGuard::unlocked(state, || match pool {
            Some(pool) => self.driver.pool_free(self.id, pool, segment.addr),
            None => self.driver.free(self.id, segment.addr),
        });
        state.budget.leaving -= segment.size;
        state.pools.unhold(segment.pool);
        if freed.is_err() {
            state.restore_segment(&segment, context.as_ref());
        }
        // History may have been switched off meanwhile.
        state.history.bury(context);
        freed?;
        state.budget.device_full = false;
        Ok(true)
    }
}
