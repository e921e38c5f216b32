//! Returning cached memory to the driver.

use parking_lot::MutexGuard;

use super::DeviceAllocator;
use super::state::{Request, State};
use crate::error::Result;
use crate::ids::SegmentId;

impl DeviceAllocator {
    /// Returns every idle segment to the driver, after everything submitted has finished.
    pub fn empty_cache(&self) -> Result<()> {
        let mut state = self.state.lock();
        self.release_idle(&mut state, None)
    }

    /// Waits for the device, reaps all events, then returns idle segments, oldest first: until `enough`
    /// bytes went back, or all of them.
    pub(super) fn release_idle(
        &self,
        state: &mut MutexGuard<'_, State>,
        enough: Option<usize>,
    ) -> Result<()> {
        // Only what was idle before the wait is known to be out of use after it: work submitted by
        // other threads meanwhile may still run on what they freed. A segment that became idle since
        // then has a later tick and stays.
        let tick = state.tick;
        let unfenced = state.unfenced.clone();
        MutexGuard::unlocked(state, || {
            self.driver.synchronize_device(self.id)?;
            self.driver.release_external_caches(self.id)
        })?;
        self.drain_events(state, unfenced)?;
        let mut idle: Vec<(u64, SegmentId, usize)> = state
            .segments
            .iter()
            .filter(|(_, segment)| segment.idle_since <= tick && state.is_idle(segment.first))
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
            let Some(segment) = state.segments.get(id) else { continue };
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
        let Some(segment) = state.remove_segment(id) else { return Ok(false) };
        let freed = MutexGuard::unlocked(state, || self.driver.free(self.id, segment.addr));
        if let Err(error) = freed {
            state.restore_segment(&segment);
            return Err(error.into());
        }
        Ok(true)
    }
}
