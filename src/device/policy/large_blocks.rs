//! What sizes a program's large blocks have, by their bytes. Pure.

use std::collections::BTreeMap;

/// The statistics' pool of blocks above a MiB.
pub(super) const LARGE_POOL: usize = 1;
/// A program's blocks above a MiB are looked at once there are this many bytes of them.
pub(super) const LOOKED_AT: usize = 1 << 30;

/// Bytes in active blocks above a MiB, by the size of the block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::device) struct LargeBlocks {
    by_size: BTreeMap<usize, usize>,
    bytes: usize,
}

impl FromIterator<usize> for LargeBlocks {
    /// Of the sizes of blocks.
    fn from_iter<I: IntoIterator<Item = usize>>(sizes: I) -> Self {
        let mut blocks = Self::default();
        for size in sizes {
            *blocks.by_size.entry(size).or_default() += size;
            blocks.bytes += size;
        }
        blocks
    }
}

impl LargeBlocks {
    /// The bytes in all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What there is more of than in `others`, size by size: blocks that stay count in neither.
    pub fn beyond(mut self, others: &Self) -> Self {
        for (size, bytes) in &mut self.by_size {
            *bytes = bytes.saturating_sub(others.by_size.get(size).copied().unwrap_or(0));
        }
        self.bytes = self.by_size.values().sum();
        self
    }

    /// The size of the block in the middle, bytes: half of all bytes, at least, are in blocks up to it. 0 without blocks.
    pub fn middle(&self) -> usize {
        let half = self.bytes().div_ceil(2);
        let mut below = 0;
        let middle = self.by_size.iter().find(|(_, bytes)| {
            below += **bytes;
            below >= half
        });
        middle.map_or(0, |(size, _)| *size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_bytes_are_in_blocks_up_to_the_one_in_the_middle() {
        // 5 × 2 + 1 × 11 bytes: ten in small blocks, fewer than half; 6 × 2 are more.
        let blocks =
            |small: usize| -> LargeBlocks { std::iter::repeat_n(2, small).chain([11]).collect() };
        assert_eq!(blocks(5).middle(), 11);
        assert_eq!(blocks(6).middle(), 2);
        assert_eq!(blocks(6).bytes(), 23);
        assert_eq!(LargeBlocks::default().middle(), 0);
    }

    #[test]
    fn blocks_that_stay_do_not_count() {
        let before: LargeBlocks = [100, 100, 7].into_iter().collect();
        let after: LargeBlocks = [100, 100, 100, 5, 5].into_iter().collect();
        let beyond = after.beyond(&before);
        assert_eq!(beyond.bytes(), 110);
        assert_eq!(beyond.middle(), 100);
        // Of what is gone since nothing is left, and it takes nothing from other sizes.
        assert_eq!(before.clone().beyond(&beyond).bytes(), 107);
    }
}
