//! Free addresses of one window: best fit, ties to the lowest address,
//! neighbours merged. Pure arithmetic.

use std::collections::{BTreeMap, BTreeSet};

/// Free ranges of a window of addresses.
#[derive(Debug)]
pub struct AddressSpace {
    by_start: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl AddressSpace {
    /// A window of `len` bytes from `base`, all free.
    pub fn new(base: u64, len: u64) -> Self {
        let mut space = AddressSpace {
            by_start: BTreeMap::new(),
            by_size: BTreeSet::new(),
        };
        space.add(base, len);
        space
    }

    fn add(&mut self, start: u64, len: u64) {
        if len > 0 {
            self.by_start.insert(start, len);
            self.by_size.insert((len, start));
        }
    }

    fn remove(&mut self, start: u64, len: u64) {
        self.by_start.remove(&start);
        self.by_size.remove(&(len, start));
    }

    /// Takes `len` bytes whose start is a multiple of `align` (a power of two).
    pub fn take(&mut self, len: u64, align: u64) -> Option<u64> {
        let (range_len, range_start, start) =
            self.by_size
                .range((len, 0)..)
                .find_map(|&(range_len, range_start)| {
                    let start = range_start.checked_next_multiple_of(align)?;
                    (start - range_start + len <= range_len).then_some((
                        range_len,
                        range_start,
                        start,
                    ))
                })?;
        self.remove(range_start, range_len);
        self.add(range_start, start - range_start);
        self.add(start + len, range_start + range_len - start - len);
        Some(start)
    }

    /// Takes exactly the range at `start`, if all of it is free.
    pub fn take_at(&mut self, start: u64, len: u64) -> bool {
        let Some((&range_start, &range_len)) = self.by_start.range(..=start).next_back() else {
            return false;
        };
        if start + len > range_start + range_len {
            return false;
        }
        self.remove(range_start, range_len);
        self.add(range_start, start - range_start);
        self.add(start + len, range_start + range_len - start - len);
        true
    }

    /// Gives back a range that was taken.
    pub fn give(&mut self, mut start: u64, mut len: u64) {
        if let Some((&before, &before_len)) = self.by_start.range(..start).next_back()
            && before + before_len == start
        {
            self.remove(before, before_len);
            start = before;
            len += before_len;
        }
        if let Some(&after_len) = self.by_start.get(&(start + len)) {
            self.remove(start + len, after_len);
            len += after_len;
        }
        self.add(start, len);
    }

    /// Bytes that are free.
    pub fn free_bytes(&self) -> u64 {
        self.by_start.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_merge_and_best_fit_wins() {
        let mut space = AddressSpace::new(0x1000, 0x1000);
        let a = space.take(0x100, 0x100).unwrap();
        let b = space.take(0x200, 0x100).unwrap();
        let c = space.take(0x100, 0x100).unwrap();
        assert_eq!((a, b, c), (0x1000, 0x1100, 0x1300));
        space.give(a, 0x100);
        assert_eq!(
            space.take(0x100, 0x100),
            Some(a),
            "the smallest range that fits"
        );
        space.give(a, 0x100);
        space.give(c, 0x100);
        space.give(b, 0x200);
        assert_eq!(space.free_bytes(), 0x1000);
        assert_eq!(
            space.take(0x1000, 0x1000),
            Some(0x1000),
            "all ranges merged again"
        );
    }

    #[test]
    fn alignment_is_kept_and_the_gap_stays_usable() {
        let mut space = AddressSpace::new(0x1000, 0x10000);
        assert_eq!(space.take(0x1000, 0x4000), Some(0x4000));
        assert_eq!(space.take(0x3000, 0x1000), Some(0x1000));
        assert!(!space.take_at(0x4000, 0x1000));
        assert!(space.take_at(0x5000, 0x1000));
    }
}
