//! A statistic of the small and the large pool, on its way out.

use super::Figures;
use super::pair::Pair;

/// Each is a number of the small pool and one of the large pool.
pub(super) struct Pools {
    pub current: Pair,
    pub peak: Pair,
    pub allocated: Pair,
    pub freed: Pair,
}

impl Pools {
    /// The small pool, the large one, and both, whose peak is its own.
    #[inline]
    pub fn written(self, total_peak: i64) -> [Figures; 3] {
        let Self {
            current,
            peak,
            allocated,
            freed,
        } = self;
        let total_now = current.sums().firsts(Pair::new(total_peak, total_peak));
        let total_ever = allocated.sums().firsts(freed.sums());
        [
            [current.firsts(peak).get(), allocated.firsts(freed).get()],
            [current.seconds(peak).get(), allocated.seconds(freed).get()],
            [total_now.get(), total_ever.get()],
        ]
    }
}
