//! Blocks to be packed, and what is in their way.

/// A block that is alive for a while in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// When it comes, in [0, period).
    pub from: usize,
    /// For how long it stays, in (0, period].
    pub stay: usize,
    /// Bytes, not 0.
    pub size: usize,
}

impl Item {
    /// Whether both are alive at some time. Time goes round.
    pub fn meets(&self, other: &Self, period: usize) -> bool {
        since(self.from, other.from, period) < self.stay
            || since(other.from, self.from, period) < other.stay
    }

    /// Whether it is alive just before `time`.
    pub fn is_there(&self, time: usize, period: usize) -> bool {
        let since = since(self.from, time, period);
        0 < since && since < self.stay
    }
}

/// Steps from one time of a period to another. Without a division: it is asked for each pair of items.
fn since(from: usize, to: usize, period: usize) -> usize {
    let round = if to < from { period } else { 0 };
    to + round - from
}

/// What something else takes for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Obstacle {
    /// Where it begins, in bytes.
    pub offset: usize,
    /// Bytes, not 0.
    pub size: usize,
}
