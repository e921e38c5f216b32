//! What the counters of blocks say when someone asks.

use super::block_counters::{BlockCounters, Lane, Lanes};
use super::pair::Pair;
use super::{Figures, PoolStat, Stat};

/// The sum of two pools' statistics, whose peak is its own.
#[inline]
fn both(small: Stat, large: Stat, peak: i64) -> Stat {
    Stat {
        current: small.current + large.current,
        peak,
        allocated: small.allocated + large.allocated,
        freed: small.freed + large.freed,
    }
}

impl BlockCounters {
    /// Bytes or blocks now, over both pools.
    pub fn current(&self, lane: Lane) -> i64 {
        self.now(lane as usize, 0) + self.now(lane as usize, 1)
    }

    /// Bytes in active blocks now.
    pub fn active_bytes(&self) -> i64 {
        self.active(2)[1]
    }

    /// A pool's part of a lane.
    #[inline]
    fn part(&self, lane: usize, pool: usize) -> Stat {
        let current = self.now(lane, pool);
        let freed = self.freed[pool].0[lane] - self.freed_base[pool].0[lane];
        Stat {
            current,
            peak: self.peak[pool].0[lane],
            allocated: current - self.base[pool].0[lane] + freed,
            freed,
        }
    }

    /// One lane as clients see it: the small and the large pool, and both.
    #[inline]
    pub fn parts(&self, lane: Lane) -> [Figures; 3] {
        let lane = lane as usize;
        let pools = |lanes: &[Lanes; 2]| Pair::new(lanes[0].0[lane], lanes[1].0[lane]);
        let peak = pools(&self.peak);
        let current = peak.minus(pools(&self.room));
        let freed = pools(&self.freed).minus(pools(&self.freed_base));
        let allocated = current.minus(pools(&self.base)).plus(freed);
        let total_peak = self.total_peak.0[lane];
        let total_now = current.sums().firsts(Pair::new(total_peak, total_peak));
        let total_ever = allocated.sums().firsts(freed.sums());
        [
            [current.firsts(peak).get(), allocated.firsts(freed).get()],
            [current.seconds(peak).get(), allocated.seconds(freed).get()],
            [total_now.get(), total_ever.get()],
        ]
    }

    /// The same of active blocks (`bytes` false) or the bytes in them. Every increase is one of the live
    /// ones.
    #[inline]
    pub fn active_parts(&self, bytes: bool) -> [Figures; 3] {
        let (live, waiting) = if bytes {
            (Lane::AllocatedBytes, Lane::WaitingBytes)
        } else {
            (Lane::Allocation, Lane::Waiting)
        };
        if self.has_waited {
            self.waited_parts(live, waiting, bytes)
        } else {
            self.parts(live)
        }
    }

    #[inline(never)]
    fn waited_parts(&self, live: Lane, waiting: Lane, bytes: bool) -> [Figures; 3] {
        let which = usize::from(bytes);
        let part = |pool: usize| {
            let live = self.part(live as usize, pool);
            let waiting = self.part(waiting as usize, pool);
            // What came to wait since the reset had been live; what waited then counts as well.
            Stat {
                current: live.current + waiting.current,
                peak: live.peak.max(self.active_peak[pool][which]),
                allocated: live.allocated,
                freed: live.freed - waiting.allocated + waiting.freed,
            }
        };
        let (small, large) = (part(0), part(1));
        let peak = self.total_peak.0[live as usize].max(self.active_peak[2][which]);
        let mut parts = [small, large, both(small, large, peak)];
        for part in &mut parts {
            part.peak = part.peak.max(part.current);
        }
        parts.map(|part| part.figures())
    }

    /// One lane with what its figures follow from.
    pub fn stat(&self, lane: Lane) -> PoolStat {
        let lane = lane as usize;
        let pick = |lanes: &[Lanes; 2]| [lanes[0].0[lane], lanes[1].0[lane]];
        let current = [self.now(lane, 0), self.now(lane, 1)];
        let (freed, freed_base) = (pick(&self.freed), pick(&self.freed_base));
        let base = pick(&self.base);
        let allocated =
            [0, 1].map(|pool| current[pool] - base[pool] + freed[pool] - freed_base[pool]);
        let total_peak = self.total_peak.0[lane];
        PoolStat::from_parts(current, pick(&self.peak), allocated, base, total_peak)
    }

    /// Active blocks (`bytes` false) or the bytes in them. Every increase is one of the live ones.
    pub fn active_stat(&self, bytes: bool) -> PoolStat {
        let (live, waiting) = if bytes {
            (Lane::AllocatedBytes, Lane::WaitingBytes)
        } else {
            (Lane::Allocation, Lane::Waiting)
        };
        let live_stat = self.stat(live);
        let which = usize::from(bytes);
        let now = [0, 1, 2].map(|pool| self.active(pool)[which]);
        let noted = [0, 1, 2].map(|pool| self.active_peak[pool][which]);
        let (small, large) = (live_stat.pool(true), live_stat.pool(false));
        let peak = |pool: usize, live: i64| live.max(noted[pool]).max(now[pool]);
        let base = [0, 1].map(|pool: usize| {
            let lanes = &self.base[pool].0;
            lanes[live as usize] + lanes[waiting as usize]
        });
        PoolStat::from_parts(
            [now[0], now[1]],
            [peak(0, small.peak), peak(1, large.peak)],
            [small.allocated, large.allocated],
            base,
            peak(2, live_stat.aggregate().peak),
        )
    }
}
