//! The counters every allocation and free changes.

use super::PoolStat;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Live allocations.
    Allocation,
    /// Bytes in live allocations, after rounding.
    AllocatedBytes,
    /// Bytes asked for by the client, of active blocks.
    RequestedBytes,
    /// Free blocks that are parts of a segment in use.
    InactiveSplit,
    /// Bytes in such blocks.
    InactiveSplitBytes,
    /// Freed blocks that wait for events.
    Waiting,
    /// Bytes in such blocks.
    WaitingBytes,
}

const LANES: usize = 8;

/// A cache line of counters, one for each [`Lane`].
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Lanes([i64; LANES]);

/// Counters of blocks, by pool (0 small, 1 large) and lane.
///
/// An increase is an addition to `current`, nothing else. Peaks are looked after before a decrease (and
/// when someone asks): a value can't have been higher in between. Totals over both pools, and what was
/// added, follow from the rest. So do the figures of active blocks, which are the live and the waiting
/// ones: while none wait, both figures are the same.
#[derive(Debug, Clone, Default)]
pub struct BlockCounters {
    current: [Lanes; 2],
    /// All decreases.
    freed: [Lanes; 2],
    peak: [Lanes; 2],
    /// Of the sum over both pools.
    total_peak: Lanes,
    /// Peaks of active blocks and their bytes while blocks waited: by pool, and of the sum.
    active_peak: [[i64; 2]; 3],
    /// `current` and `freed` at the last reset of accumulated values.
    base: [Lanes; 2],
    freed_base: [Lanes; 2],
}

impl BlockCounters {
    /// A block of `size` bytes, `requested` of them wanted, was handed out.
    #[inline]
    pub fn handed_out(&mut self, small: bool, size: i64, requested: i64) {
        let lanes = &mut self.current[usize::from(!small)].0;
        lanes[Lane::Allocation as usize] += 1;
        lanes[Lane::AllocatedBytes as usize] += size;
        lanes[Lane::RequestedBytes as usize] += requested;
    }

    /// The client gave a block back and it is no longer active.
    #[inline]
    pub fn freed(&mut self, small: bool, size: i64, requested: i64) {
        if self.any_waiting() {
            self.note_active_peaks();
        }
        self.decrease(Lane::Allocation, small, 1);
        self.decrease(Lane::AllocatedBytes, small, size);
        self.decrease(Lane::RequestedBytes, small, requested);
    }

    /// The client gave a block back; it stays active.
    pub fn retired(&mut self, small: bool, size: i64) {
        self.decrease(Lane::Allocation, small, 1);
        self.decrease(Lane::AllocatedBytes, small, size);
        let lanes = &mut self.current[usize::from(!small)].0;
        lanes[Lane::Waiting as usize] += 1;
        lanes[Lane::WaitingBytes as usize] += size;
    }

    /// A block that was retired is no longer active.
    pub fn completed(&mut self, small: bool, size: i64, requested: i64) {
        self.note_active_peaks();
        let lanes = &mut self.current[usize::from(!small)].0;
        lanes[Lane::Waiting as usize] -= 1;
        lanes[Lane::WaitingBytes as usize] -= size;
        self.decrease(Lane::RequestedBytes, small, requested);
    }

    /// Free parts of segments became more or fewer, larger or smaller.
    #[inline]
    pub fn split_changed(&mut self, small: bool, blocks: i64, bytes: i64) {
        self.change(Lane::InactiveSplit, small, blocks);
        self.change(Lane::InactiveSplitBytes, small, bytes);
    }

    #[inline]
    fn change(&mut self, lane: Lane, small: bool, amount: i64) {
        let pool = usize::from(!small);
        self.note_peak(lane, pool);
        self.current[pool].0[lane as usize] += amount;
        self.freed[pool].0[lane as usize] += (-amount).max(0);
    }

    #[inline]
    fn decrease(&mut self, lane: Lane, small: bool, amount: i64) {
        let pool = usize::from(!small);
        self.note_peak(lane, pool);
        self.current[pool].0[lane as usize] -= amount;
        self.freed[pool].0[lane as usize] += amount;
    }

    /// Rarely true, so a branch rather than a store each time.
    #[inline]
    fn note_peak(&mut self, lane: Lane, pool: usize) {
        let lane = lane as usize;
        let value = self.current[pool].0[lane];
        if value > self.peak[pool].0[lane] {
            self.peak[pool].0[lane] = value;
        }
        let total = self.current[0].0[lane] + self.current[1].0[lane];
        if total > self.total_peak.0[lane] {
            self.total_peak.0[lane] = total;
        }
    }

    #[inline]
    fn any_waiting(&self) -> bool {
        let waiting = Lane::Waiting as usize;
        self.current[0].0[waiting] + self.current[1].0[waiting] != 0
    }

    /// Active blocks and bytes: of a pool (0, 1), or of both (2).
    fn active(&self, pool: usize) -> [i64; 2] {
        let of = |pool: usize, live: Lane, waiting: Lane| {
            let lanes = &self.current[pool].0;
            lanes[live as usize] + lanes[waiting as usize]
        };
        let both = |pool| {
            [
                of(pool, Lane::Allocation, Lane::Waiting),
                of(pool, Lane::AllocatedBytes, Lane::WaitingBytes),
            ]
        };
        match pool {
            2 => {
                let ([a, b], [c, d]) = (both(0), both(1));
                [a + c, b + d]
            }
            pool => both(pool),
        }
    }

    #[cold]
    fn note_active_peaks(&mut self) {
        for pool in 0..3 {
            let now = self.active(pool);
            for (peak, value) in self.active_peak[pool].iter_mut().zip(now) {
                *peak = (*peak).max(value);
            }
        }
    }

    /// Bytes or blocks now, over both pools.
    pub fn current(&self, lane: Lane) -> i64 {
        self.current[0].0[lane as usize] + self.current[1].0[lane as usize]
    }

    /// Bytes in active blocks now.
    pub fn active_bytes(&self) -> i64 {
        self.active(2)[1]
    }

    /// One lane as clients see it.
    pub fn stat(&self, lane: Lane) -> PoolStat {
        let lane = lane as usize;
        let pick = |lanes: &[Lanes; 2]| [lanes[0].0[lane], lanes[1].0[lane]];
        let current = pick(&self.current);
        let (freed, freed_base) = (pick(&self.freed), pick(&self.freed_base));
        let base = pick(&self.base);
        let mut peak = pick(&self.peak);
        let mut allocated = [0; 2];
        for pool in 0..2 {
            peak[pool] = peak[pool].max(current[pool]);
            allocated[pool] = current[pool] - base[pool] + freed[pool] - freed_base[pool];
        }
        let total_peak = self.total_peak.0[lane].max(current[0] + current[1]);
        PoolStat::from_parts(current, peak, allocated, base, total_peak)
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

    /// Forgets the accumulated values.
    pub fn reset_accumulated(&mut self) {
        self.base = self.current;
        self.freed_base = self.freed;
    }

    /// The peaks become the current values.
    pub fn reset_peak(&mut self) {
        self.peak = self.current;
        for lane in 0..LANES {
            self.total_peak.0[lane] = self.current[0].0[lane] + self.current[1].0[lane];
        }
        self.active_peak = [0, 1, 2].map(|pool| self.active(pool));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The reference counts every change at once: allocations, their bytes, active blocks, their
        /// bytes, requested bytes, split blocks, their bytes.
        #[test]
        fn agrees_with_plain_counting(ops in prop::collection::vec((any::<bool>(), 0u8..7, 1i64..1000), 1..200)) {
            let mut counters = BlockCounters::default();
            let mut plain = [PoolStat::default(); 7];
            let (mut live, mut pending) = (Vec::new(), Vec::new());
            let mut split = [(0i64, 0i64); 2];
            for (small, kind, amount) in ops {
                match kind {
                    0 | 1 => {
                        counters.handed_out(small, amount * 512, amount);
                        for (stat, by) in plain.iter_mut().zip([1, amount * 512, 1, amount * 512, amount]) {
                            stat.increase(small, by);
                        }
                        live.push((small, amount));
                    }
                    2 => if !live.is_empty() {
                        let (small, amount) = live.swap_remove(amount as usize % live.len());
                        counters.retired(small, amount * 512);
                        plain[0].decrease(small, 1);
                        plain[1].decrease(small, amount * 512);
                        pending.push((small, amount));
                    },
                    3 => if let Some((small, amount)) = pending.pop() {
                        counters.completed(small, amount * 512, amount);
                        for (stat, by) in plain[2..].iter_mut().zip([1, amount * 512, amount]) {
                            stat.decrease(small, by);
                        }
                    },
                    4 => {
                        let held = &mut split[usize::from(small)];
                        let bytes = (amount - 500).max(-held.1);
                        let blocks = (amount % 4 - 2).max(-held.0);
                        *held = (held.0 + blocks, held.1 + bytes);
                        counters.split_changed(small, blocks, bytes);
                        plain[5].change(small, blocks);
                        plain[6].change(small, bytes);
                    }
                    5 => if !live.is_empty() {
                        let (small, amount) = live.swap_remove(amount as usize % live.len());
                        counters.freed(small, amount * 512, amount);
                        for (stat, by) in plain.iter_mut().zip([1, amount * 512, 1, amount * 512, amount]) {
                            stat.decrease(small, by);
                        }
                    },
                    _ if small => {
                        counters.reset_peak();
                        plain.iter_mut().for_each(PoolStat::reset_peak);
                    }
                    _ => {
                        counters.reset_accumulated();
                        plain.iter_mut().for_each(PoolStat::reset_accumulated);
                    }
                }
                let stats = [
                    counters.stat(Lane::Allocation),
                    counters.stat(Lane::AllocatedBytes),
                    counters.active_stat(false),
                    counters.active_stat(true),
                    counters.stat(Lane::RequestedBytes),
                    counters.stat(Lane::InactiveSplit),
                    counters.stat(Lane::InactiveSplitBytes),
                ];
                for (stat, plain) in stats.iter().zip(&plain) {
                    prop_assert_eq!(stat.pool(true), plain.pool(true));
                    prop_assert_eq!(stat.pool(false), plain.pool(false));
                    prop_assert_eq!(stat.aggregate(), plain.aggregate());
                    prop_assert_eq!(stat.current(), plain.current());
                }
                prop_assert_eq!(counters.current(Lane::AllocatedBytes), plain[1].current());
                prop_assert_eq!(counters.active_bytes(), plain[3].current());
            }
        }
    }
}
