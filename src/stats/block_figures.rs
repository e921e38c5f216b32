//! What the counters of blocks say when someone asks.

use super::block_counters::{BlockCounters, Lane, Lanes};
use super::pair::Pair;
use super::pools::Pools;
use super::{Figures, PoolStat};

impl BlockCounters {
    /// Bytes or blocks now, over both pools.
    pub fn current(&self, lane: Lane) -> i64 {
        self.now(lane as usize, 0) + self.now(lane as usize, 1)
    }

    /// Bytes in active blocks now.
    pub fn active_bytes(&self) -> i64 {
        self.active(2)[1]
    }

    #[inline]
    fn pools(&self, lane: Lane) -> Pools {
        let lane = lane as usize;
        let pools = |lanes: &[Lanes; 2]| Pair::new(lanes[0].0[lane], lanes[1].0[lane]);
        let peak = pools(&self.peak);
        let current = peak.minus(pools(&self.room));
        let freed = pools(&self.freed);
        let (base, freed) = if self.was_reset {
            (pools(&self.base), freed.minus(pools(&self.freed_base)))
        } else {
            (Pair::new(0, 0), freed)
        };
        Pools {
            current,
            peak,
            allocated: current.minus(base).plus(freed),
            freed,
        }
    }

    /// One lane as clients see it: the small and the large pool, and both.
    #[inline]
    pub fn parts(&self, lane: Lane) -> [Figures; 3] {
        self.pools(lane).written(self.total_peak.0[lane as usize])
    }

    /// Whether a lane was ever anything but 0.
    #[inline]
    pub fn ever_counted(&self, lane: Lane) -> bool {
        let lane = lane as usize;
        // A value above 0 raised the peak; a peak that fell to 0 since, by a reset, left something freed.
        let freed = self.freed[0].0[lane] | self.freed[1].0[lane];
        self.total_peak.0[lane] | freed != 0
    }

    /// The figures of live blocks (`bytes` false), or of the bytes in them.
    #[inline]
    pub fn live_parts(&self, bytes: bool) -> [Figures; 3] {
        self.parts(if bytes {
            Lane::AllocatedBytes
        } else {
            Lane::Allocation
        })
    }

    /// Whether figures of active blocks may differ from those of live ones.
    #[inline]
    pub fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// The same of active blocks (`bytes` false) or the bytes in them. Every increase is one of the live
    /// ones.
    #[inline]
    pub fn active_parts(&self, bytes: bool) -> [Figures; 3] {
        let (lane, waiting) = if bytes {
            (Lane::AllocatedBytes, Lane::WaitingBytes)
        } else {
            (Lane::Allocation, Lane::Waiting)
        };
        let (live, waiting) = (self.pools(lane), self.pools(waiting));
        let current = live.current.plus(waiting.current);
        let noted = self.active_peak.map(|peaks| peaks[usize::from(bytes)]);
        let ([small, large], peaks) = (current.get(), live.peak.get());
        let peak = Pair::new(
            peaks[0].max(noted[0]).max(small),
            peaks[1].max(noted[1]).max(large),
        );
        let total_peak = self.total_peak.0[lane as usize];
        let active = Pools {
            current,
            peak,
            allocated: live.allocated,
            // What came to wait since the reset had been live; what waited then counts as well.
            freed: live.freed.minus(waiting.allocated).plus(waiting.freed),
        };
        active.written(total_peak.max(noted[2]).max(small + large))
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
