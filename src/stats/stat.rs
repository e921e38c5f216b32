//! One statistic.

use super::pair::Pair;
use super::pools::Pools;

/// A statistic as clients see it (the shape of `torch.npu.memory_stats()`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    /// Now.
    pub current: i64,
    /// Largest `current` since the last reset of peaks.
    pub peak: i64,
    /// Total of all increases since the last reset of accumulated values.
    pub allocated: i64,
    /// Total of all decreases since then.
    pub freed: i64,
}

/// A [`Stat`] in the order in which it is written out: `current` and `peak`, `allocated` and `freed`.
pub type Figures = [[i64; 2]; 2];

impl Stat {
    /// Its figures.
    pub fn figures(&self) -> Figures {
        [[self.current, self.peak], [self.allocated, self.freed]]
    }

    /// Adds `amount` ≥ 0.
    #[inline]
    pub fn increase(&mut self, amount: i64) {
        self.current += amount;
        self.peak = self.peak.max(self.current);
        self.allocated += amount;
    }

    /// Subtracts `amount` ≥ 0.
    #[inline]
    pub fn decrease(&mut self, amount: i64) {
        self.current -= amount;
        self.freed += amount;
    }

    /// An amount that was subtracted and added again never moved.
    pub fn forget_move(&mut self, amount: i64) {
        self.allocated -= amount;
        self.freed -= amount;
    }

    /// Forgets the accumulated values.
    pub fn reset_accumulated(&mut self) {
        self.allocated = 0;
        self.freed = 0;
    }

    /// The peak becomes the current value.
    pub fn reset_peak(&mut self) {
        self.peak = self.current;
    }
}

/// A statistic kept for the small and the large pool. The sum over both has a peak of its own; its other
/// values, and what was freed, follow from the rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStat {
    /// By pool: 0 small, 1 large.
    current: [i64; 2],
    peak: [i64; 2],
    allocated: [i64; 2],
    /// `current` at the last reset of accumulated values.
    base: [i64; 2],
    total: i64,
    total_peak: i64,
}

impl PoolStat {
    /// A statistic counted elsewhere. Arrays are by pool: 0 small, 1 large; `base` is what was current at
    /// the last reset of accumulated values.
    pub(super) fn from_parts(
        current: [i64; 2],
        peak: [i64; 2],
        allocated: [i64; 2],
        base: [i64; 2],
        total_peak: i64,
    ) -> Self {
        Self {
            current,
            peak,
            allocated,
            base,
            total: current[0] + current[1],
            total_peak,
        }
    }

    /// Adds `amount` ≥ 0 to the pool.
    #[inline]
    pub fn increase(&mut self, small: bool, amount: i64) {
        let pool = usize::from(!small);
        self.current[pool] += amount;
        self.peak[pool] = self.peak[pool].max(self.current[pool]);
        self.allocated[pool] += amount;
        self.total += amount;
        self.total_peak = self.total_peak.max(self.total);
    }

    /// Subtracts `amount` ≥ 0 from the pool.
    #[inline]
    pub fn decrease(&mut self, small: bool, amount: i64) {
        self.current[usize::from(!small)] -= amount;
        self.total -= amount;
    }

    /// An amount that was subtracted and added again never moved.
    pub fn forget_move(&mut self, small: bool, amount: i64) {
        self.allocated[usize::from(!small)] -= amount;
    }

    /// Adds a signed amount.
    #[inline]
    pub fn change(&mut self, small: bool, amount: i64) {
        if amount >= 0 {
            self.increase(small, amount);
        } else {
            self.decrease(small, -amount);
        }
    }

    /// Now, over both pools.
    #[inline]
    pub fn current(&self) -> i64 {
        self.total
    }

    /// One pool's statistic.
    #[inline]
    pub fn pool(&self, small: bool) -> Stat {
        let pool = usize::from(!small);
        let (current, allocated) = (self.current[pool], self.allocated[pool]);
        Stat {
            current,
            peak: self.peak[pool],
            allocated,
            freed: self.base[pool] + allocated - current,
        }
    }

    /// The small pool, the large one, and both.
    #[inline]
    pub fn parts(&self) -> [Figures; 3] {
        let pools = |of: [i64; 2]| Pair::new(of[0], of[1]);
        let (current, allocated) = (pools(self.current), pools(self.allocated));
        let statistic = Pools {
            current,
            peak: pools(self.peak),
            allocated,
            freed: pools(self.base).plus(allocated).minus(current),
        };
        statistic.written(self.total_peak)
    }

    /// The statistic over both pools.
    #[inline]
    pub fn aggregate(&self) -> Stat {
        let allocated = self.allocated[0] + self.allocated[1];
        Stat {
            current: self.total,
            peak: self.total_peak,
            allocated,
            freed: self.base[0] + self.base[1] + allocated - self.total,
        }
    }

    /// Forgets the accumulated values.
    pub fn reset_accumulated(&mut self) {
        self.allocated = [0; 2];
        self.base = self.current;
    }

    /// The peaks become the current values.
    pub fn reset_peak(&mut self) {
        self.peak = self.current;
        self.total_peak = self.total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A pool statistic equals three plain ones (small, large, both).
        #[test]
        fn derived_values_equal_counted_ones(
            ops in prop::collection::vec((any::<bool>(), 0u8..6, 1i64..1000), 1..200)
        ) {
            let mut stat = PoolStat::default();
            let mut plain = [Stat::default(); 3];
            for (small, kind, amount) in ops {
                let pool = if small { 0 } else { 1 };
                match kind {
                    0..=2 => {
                        stat.increase(small, amount);
                        plain[pool].increase(amount);
                        plain[2].increase(amount);
                    }
                    3 => {
                        let amount = amount.min(plain[pool].current);
                        stat.decrease(small, amount);
                        plain[pool].decrease(amount);
                        plain[2].decrease(amount);
                    }
                    4 => {
                        stat.reset_accumulated();
                        plain.iter_mut().for_each(Stat::reset_accumulated);
                    }
                    _ => {
                        stat.reset_peak();
                        plain.iter_mut().for_each(Stat::reset_peak);
                    }
                }
                prop_assert_eq!(stat.pool(true), plain[0]);
                prop_assert_eq!(stat.pool(false), plain[1]);
                prop_assert_eq!(stat.aggregate(), plain[2]);
            }
        }
    }
}
