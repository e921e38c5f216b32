//! The counters every allocation and free changes.

use super::PoolStat;

/// What is counted. One lane each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Live allocations.
    Allocation,
    /// Bytes in live allocations, after rounding.
    AllocatedBytes,
    /// Live allocations and freed ones that wait for events.
    Active,
    /// Bytes in active blocks.
    ActiveBytes,
    /// Bytes asked for by the client, of active blocks.
    RequestedBytes,
    /// Free blocks that are parts of a segment in use.
    InactiveSplit,
    /// Bytes in such blocks.
    InactiveSplitBytes,
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
/// added, follow from the rest.
#[derive(Debug, Clone, Default)]
pub struct BlockCounters {
    current: [Lanes; 2],
    /// All decreases.
    freed: [Lanes; 2],
    peak: [Lanes; 2],
    /// Of the sum over both pools.
    total_peak: Lanes,
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
        lanes[Lane::Active as usize] += 1;
        lanes[Lane::ActiveBytes as usize] += size;
        lanes[Lane::RequestedBytes as usize] += requested;
    }

    /// The client gave a block back; it stays active.
    #[inline]
    pub fn retired(&mut self, small: bool, size: i64) {
        self.decrease(Lane::Allocation, small, 1);
        self.decrease(Lane::AllocatedBytes, small, size);
    }

    /// A block is no longer active.
    #[inline]
    pub fn completed(&mut self, small: bool, size: i64, requested: i64) {
        self.decrease(Lane::Active, small, 1);
        self.decrease(Lane::ActiveBytes, small, size);
        self.decrease(Lane::RequestedBytes, small, requested);
    }

    /// The client gave a block back and it is no longer active.
    #[inline]
    pub fn freed(&mut self, small: bool, size: i64, requested: i64) {
        self.retired(small, size);
        self.completed(small, size, requested);
    }

    /// Free parts of segments became more or fewer, larger or smaller.
    #[inline]
    pub fn split_changed(&mut self, small: bool, blocks: i64, bytes: i64) {
        self.change(Lane::InactiveSplit, small, blocks);
        self.change(Lane::InactiveSplitBytes, small, bytes);
    }

    #[inline]
    fn change(&mut self, lane: Lane, small: bool, amount: i64) {
        if amount >= 0 {
            self.current[usize::from(!small)].0[lane as usize] += amount;
        } else {
            self.decrease(lane, small, -amount);
        }
    }

    #[inline]
    fn decrease(&mut self, lane: Lane, small: bool, amount: i64) {
        self.note_peak(lane, usize::from(!small));
        let pool = usize::from(!small);
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
        let total = value + self.current[1 - pool].0[lane];
        if total > self.total_peak.0[lane] {
            self.total_peak.0[lane] = total;
        }
    }

    /// Bytes or blocks now, over both pools.
    pub fn current(&self, lane: Lane) -> i64 {
        self.current
            .iter()
            .map(|lanes| lanes.0[lane as usize])
            .sum()
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LANES: [Lane; 7] = [
        Lane::Allocation,
        Lane::AllocatedBytes,
        Lane::Active,
        Lane::ActiveBytes,
        Lane::RequestedBytes,
        Lane::InactiveSplit,
        Lane::InactiveSplitBytes,
    ];

    proptest! {
        /// The reference counts every change at once.
        #[test]
        fn agrees_with_plain_counting(ops in prop::collection::vec((any::<bool>(), 0u8..6, 1i64..1000), 1..200)) {
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
                    _ if small => {
                        counters.reset_peak();
                        plain.iter_mut().for_each(PoolStat::reset_peak);
                    }
                    _ => {
                        counters.reset_accumulated();
                        plain.iter_mut().for_each(PoolStat::reset_accumulated);
                    }
                }
                for (lane, plain) in LANES.into_iter().zip(&plain) {
                    let stat = counters.stat(lane);
                    prop_assert_eq!(stat.pool(true), plain.pool(true));
                    prop_assert_eq!(stat.pool(false), plain.pool(false));
                    prop_assert_eq!(stat.aggregate(), plain.aggregate());
                    prop_assert_eq!(counters.current(lane), plain.current());
                }
            }
        }
    }
}
