//! Garbage collection of cached segments by age (`garbage_collection_threshold`).

use crate::device::DeviceAllocator;
use crate::device::state::State;
use crate::error::Result;
use crate::ids::{PoolId, SegmentId};
use crate::sync::MutexGuard;

impl State {
    /// Idle segments of the default large pool with their age in frees.
    fn aged_segments(&self, tick: u64) -> Vec<(SegmentId, u32, usize)> {
        self.segments
            .iter()
            .filter(|(_, segment)| {
                !segment.small && segment.pages.is_none() && segment.pool == PoolId::DEFAULT
            })
            .filter(|(_, segment)| segment.idle_since <= tick && self.is_idle(segment.first))
            .map(|(id, segment)| {
                let age = (self.tick as u32).wrapping_sub(self.arena[segment.first].free_since);
                (id, age, segment.size)
            })
            .collect()
    }
}

impl DeviceAllocator {
    /// When more than the threshold's share of the limit is reserved: returns idle segments of more
    /// than average age until enough went back. The average is taken anew after each round.
    pub(in crate::device) fn collect_garbage(
        &self,
        state: &mut MutexGuard<'_, State>,
    ) -> Result<()> {
        let Some(limit) = state.budget.limit else {
            return Ok(());
        };
        let threshold = (state.settings.garbage_collection_threshold * limit as f64) as usize;
        let Some(target) = state
            .reserved()
            .checked_sub(threshold + state.asleep_bytes())
            .filter(|over| *over > 0)
        else {
            return Ok(());
        };
        let tick = state.tick;
        if state.aged_segments(tick).is_empty() {
            return Ok(());
        }
        MutexGuard::unlocked(state, || self.driver.synchronize_device(self.id))?;
        let mut reclaimed = 0;
        while reclaimed < target {
            let aged = state.aged_segments(tick);
            if aged.is_empty() {
                break;
            }
            let total: u64 = aged.iter().map(|(_, age, _)| u64::from(*age)).sum();
            let count = aged.len() as u64;
            for (id, age, size) in aged {
                // age >= total / count, without rounding.
                if u64::from(age) * count >= total && self.release_segment(state, id, tick)? {
                    reclaimed += size;
                }
            }
        }
        Ok(())
    }
}
