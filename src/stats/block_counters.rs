//! The counters every allocation and free changes.

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

pub(super) const LANES: usize = 8;

/// A cache line of counters, one for each [`Lane`].
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
pub(super) struct Lanes(pub(super) [i64; LANES]);

/// Counters of blocks, by pool (0 small, 1 large) and lane.
///
/// Kept is how far each value is below its peak: an increase takes from that room, and a peak is moved
/// only when the room does not suffice. Values, and what was added, follow from the rest. So do the
/// figures of active blocks, which are the live and the waiting ones: while none wait, both figures are
/// the same.
#[derive(Debug, Clone, Default)]
pub struct BlockCounters {
    /// `peak` minus the current value; never negative but within a call.
    pub(super) room: [Lanes; 2],
    /// All decreases.
    pub(super) freed: [Lanes; 2],
    /// `total_peak` minus the sum over both pools.
    pub(super) total_room: Lanes,
    /// Blocks that wait, of both pools.
    pub(super) waiting: i64,
    /// Some block has waited: until then the figures of active blocks are those of the live ones.
    pub(super) has_waited: bool,
    pub(super) peak: [Lanes; 2],
    /// Of the sum over both pools.
    pub(super) total_peak: Lanes,
    /// Peaks of active blocks and their bytes while blocks waited: by pool, and of the sum.
    pub(super) active_peak: [[i64; 2]; 3],
    /// Accumulated values were reset: until then both of the following are 0.
    pub(super) was_reset: bool,
    /// Current values and `freed` at the last reset of accumulated values.
    pub(super) base: [Lanes; 2],
    pub(super) freed_base: [Lanes; 2],
}

impl BlockCounters {
    /// A block of `size` bytes, `requested` of them wanted, was handed out.
    #[inline]
    pub fn handed_out(&mut self, small: bool, size: i64, requested: i64) {
        let pool = usize::from(!small);
        self.increase(Lane::Allocation, pool, 1);
        self.increase(Lane::AllocatedBytes, pool, size);
        self.increase(Lane::RequestedBytes, pool, requested);
    }

    /// Whether [`Self::handed_out`] with these moves no peak of bytes.
    #[inline]
    pub fn has_room(&self, small: bool, size: i64, requested: i64) -> bool {
        let (room, total) = (&self.room[usize::from(!small)].0, &self.total_room.0);
        let fits = |lane: Lane, amount: i64| {
            let lane = lane as usize;
            room[lane] >= amount && total[lane] >= amount
        };
        fits(Lane::AllocatedBytes, size) & fits(Lane::RequestedBytes, requested)
    }

    /// Whether blocks wait for events.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        self.waiting != 0
    }

    /// As [`Self::freed`], of a block whose size is still to be looked up: [`Self::freed_bytes`] must follow before a
    /// peak of bytes moves, or a block waits.
    #[inline]
    pub fn freed_unread(&mut self, small: bool) {
        self.decrease(Lane::Allocation, usize::from(!small), 1);
    }

    /// The rest of a [`Self::freed_unread`].
    #[inline]
    pub fn freed_bytes(&mut self, small: bool, size: i64, requested: i64) {
        let pool = usize::from(!small);
        self.decrease(Lane::AllocatedBytes, pool, size);
        self.decrease(Lane::RequestedBytes, pool, requested);
    }

    /// The client gave a block back and it is no longer active.
    #[inline(always)]
    pub fn freed(&mut self, small: bool, size: i64, requested: i64) {
        let pool = usize::from(!small);
        if self.waiting != 0 {
            self.note_active_peaks(pool);
        }
        self.freed_unread(small);
        self.freed_bytes(small, size, requested);
    }

    /// A block was given back, handed out again by the same request, and so on, `times` times; each time
    /// free parts changed by `split` (blocks, bytes) and back, as they did once before.
    pub fn bounced(
        &mut self,
        small: bool,
        times: i64,
        size: i64,
        requested: i64,
        split: (i64, i64),
    ) {
        let freed = &mut self.freed[usize::from(!small)].0;
        freed[Lane::Allocation as usize] += times;
        freed[Lane::AllocatedBytes as usize] += times * size;
        freed[Lane::RequestedBytes as usize] += times * requested;
        freed[Lane::InactiveSplit as usize] += times * split.0.abs();
        freed[Lane::InactiveSplitBytes as usize] += times * split.1.abs();
    }

    /// The client gave a block back; it stays active.
    pub fn retired(&mut self, small: bool, size: i64) {
        let pool = usize::from(!small);
        self.decrease(Lane::Allocation, pool, 1);
        self.decrease(Lane::AllocatedBytes, pool, size);
        self.waiting += 1;
        self.has_waited = true;
        self.increase(Lane::Waiting, pool, 1);
        self.increase(Lane::WaitingBytes, pool, size);
    }

    /// A block that was retired is no longer active.
    pub fn completed(&mut self, small: bool, size: i64, requested: i64) {
        let pool = usize::from(!small);
        self.note_active_peaks(pool);
        self.waiting -= 1;
        self.decrease(Lane::Waiting, pool, 1);
        self.decrease(Lane::WaitingBytes, pool, size);
        self.decrease(Lane::RequestedBytes, pool, requested);
    }

    /// Free parts of segments became more or fewer, larger or smaller.
    #[inline]
    pub fn split_changed(&mut self, small: bool, blocks: i64, bytes: i64) {
        let pool = usize::from(!small);
        self.change(Lane::InactiveSplit, pool, blocks);
        self.change(Lane::InactiveSplitBytes, pool, bytes);
    }

    /// The same, and back again.
    #[inline]
    pub fn split_changed_and_back(&mut self, small: bool, blocks: i64, bytes: i64) {
        let pool = usize::from(!small);
        self.waver(Lane::InactiveSplit, pool, blocks);
        self.waver(Lane::InactiveSplitBytes, pool, bytes);
    }

    #[inline(always)]
    fn increase(&mut self, lane: Lane, pool: usize, amount: i64) {
        let lane = lane as usize;
        self.room[pool].0[lane] -= amount;
        if self.room[pool].0[lane] < 0 {
            self.raise_peak(lane, pool);
        }
        self.total_room.0[lane] -= amount;
        if self.total_room.0[lane] < 0 {
            self.raise_total_peak(lane);
        }
    }

    #[inline]
    fn decrease(&mut self, lane: Lane, pool: usize, amount: i64) {
        let lane = lane as usize;
        self.room[pool].0[lane] += amount;
        self.total_room.0[lane] += amount;
        self.freed[pool].0[lane] += amount;
    }

    /// By a signed amount.
    #[inline]
    fn change(&mut self, lane: Lane, pool: usize, amount: i64) {
        self.increase(lane, pool, amount);
        self.freed[pool].0[lane as usize] += (-amount).max(0);
    }

    /// By a signed amount, and by its opposite.
    #[inline]
    fn waver(&mut self, lane: Lane, pool: usize, amount: i64) {
        let at = lane as usize;
        self.freed[pool].0[at] += amount.abs();
        if amount > self.room[pool].0[at] || amount > self.total_room.0[at] {
            self.increase(lane, pool, amount);
            self.increase(lane, pool, -amount);
        }
    }

    #[cold]
    #[inline(never)]
    fn raise_peak(&mut self, lane: usize, pool: usize) {
        self.peak[pool].0[lane] -= std::mem::take(&mut self.room[pool].0[lane]);
    }

    #[cold]
    #[inline(never)]
    fn raise_total_peak(&mut self, lane: usize) {
        self.total_peak.0[lane] -= std::mem::take(&mut self.total_room.0[lane]);
    }

    /// A pool's value now.
    #[inline]
    pub(super) fn now(&self, lane: usize, pool: usize) -> i64 {
        self.peak[pool].0[lane] - self.room[pool].0[lane]
    }

    /// Bytes of a pool that were freed since the beginning, whenever accumulated values were reset.
    pub(crate) fn ever_freed(&self, pool: usize) -> i64 {
        self.freed[pool].0[Lane::AllocatedBytes as usize]
    }

    /// Active blocks and bytes: of a pool (0, 1), or of both (2).
    pub(crate) fn active(&self, pool: usize) -> [i64; 2] {
        let of = |pool: usize, live: Lane, waiting: Lane| {
            self.now(live as usize, pool) + self.now(waiting as usize, pool)
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

    /// Before active blocks of a pool become fewer; the other pool's peak is where it was or is now.
    fn note_active_peaks(&mut self, pool: usize) {
        let lanes = [
            (Lane::Allocation as usize, Lane::Waiting as usize),
            (Lane::AllocatedBytes as usize, Lane::WaitingBytes as usize),
        ];
        for (at, (live, waiting)) in lanes.into_iter().enumerate() {
            let now = self.now(live, pool) + self.now(waiting, pool);
            self.active_peak[pool][at] = self.active_peak[pool][at].max(now);
            let total = |lane: usize| self.total_peak.0[lane] - self.total_room.0[lane];
            let now = total(live) + total(waiting);
            self.active_peak[2][at] = self.active_peak[2][at].max(now);
        }
    }

    /// Forgets the accumulated values.
    pub fn reset_accumulated(&mut self) {
        for pool in 0..2 {
            for lane in 0..LANES {
                self.base[pool].0[lane] = self.now(lane, pool);
            }
        }
        self.freed_base = self.freed;
        self.was_reset = true;
    }

    /// The peaks become the current values.
    pub fn reset_peak(&mut self) {
        for pool in 0..2 {
            for lane in 0..LANES {
                self.peak[pool].0[lane] -= std::mem::take(&mut self.room[pool].0[lane]);
            }
        }
        for lane in 0..LANES {
            self.total_peak.0[lane] -= std::mem::take(&mut self.total_room.0[lane]);
        }
        self.active_peak = [0, 1, 2].map(|pool| self.active(pool));
    }
}

#[cfg(test)]
mod tests {
    use super::super::PoolStat;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The reference counts every change at once: allocations, their bytes, active blocks, their
        /// bytes, requested bytes, split blocks, their bytes.
        #[test]
        fn agrees_with_plain_counting(ops in prop::collection::vec((any::<bool>(), 0u8..8, 1i64..1000), 1..200)) {
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
                    6 => {
                        let bytes = (amount - 500).max(-split[usize::from(small)].1);
                        counters.split_changed_and_back(small, 0, bytes);
                        plain[6].change(small, bytes);
                        plain[6].change(small, -bytes);
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
                let stats = [
                    counters.stat(Lane::Allocation),
                    counters.stat(Lane::AllocatedBytes),
                    counters.active_stat(false),
                    counters.active_stat(true),
                    counters.stat(Lane::RequestedBytes),
                    counters.stat(Lane::InactiveSplit),
                    counters.stat(Lane::InactiveSplitBytes),
                ];
                let parts = [
                    counters.parts(Lane::Allocation),
                    counters.parts(Lane::AllocatedBytes),
                    counters.active_parts(false),
                    counters.active_parts(true),
                    counters.parts(Lane::RequestedBytes),
                    counters.parts(Lane::InactiveSplit),
                    counters.parts(Lane::InactiveSplitBytes),
                ];
                for (lane, plain) in [(Lane::InactiveSplit, &plain[5]), (Lane::InactiveSplitBytes, &plain[6])] {
                    prop_assert!(counters.ever_counted(lane) || *plain == PoolStat::default());
                }
                if !counters.has_waited() {
                    prop_assert_eq!((&plain[0], &plain[1]), (&plain[2], &plain[3]));
                }
                for (parts, plain) in parts.iter().zip(&plain) {
                    let plain = [plain.pool(true), plain.pool(false), plain.aggregate()].map(|stat| stat.figures());
                    prop_assert_eq!(parts, &plain);
                }
                for plain in &plain {
                    let figures = [plain.pool(true), plain.pool(false), plain.aggregate()].map(|stat| stat.figures());
                    prop_assert_eq!(plain.parts(), figures);
                }
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
