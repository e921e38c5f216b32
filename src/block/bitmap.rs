//! A set of small integers with constant-time "smallest member ≥ n".

/// Integers a set can hold: 0 up to this.
pub const BITS: usize = 64 * 64;

/// A set over `0..4096` in two levels: a summary bit for each 64-bit word.
#[derive(Debug)]
pub struct Bitmap {
    summary: u64,
    words: [u64; 64],
}

impl Default for Bitmap {
    fn default() -> Self {
        Self {
            summary: 0,
            words: [0; 64],
        }
    }
}

impl Bitmap {
    /// Adds `bit`.
    #[inline]
    pub fn set(&mut self, bit: usize) {
        debug_assert!(bit < BITS);
        let word = (bit / 64) % 64;
        self.words[word] |= 1 << (bit % 64);
        self.summary |= 1 << word;
    }

    /// Removes `bit`, if `now`; without a branch.
    #[inline]
    pub fn clear_if(&mut self, bit: usize, now: bool) {
        debug_assert!(bit < BITS);
        let word = (bit / 64) % 64;
        let left = self.words[word] & !(u64::from(now) << (bit % 64));
        self.words[word] = left;
        self.summary &= !(u64::from(left == 0) << word);
    }

    /// The smallest member ≥ `from`.
    #[inline]
    pub fn next(&self, from: usize) -> Option<usize> {
        if from >= BITS {
            return None;
        }
        let word = from / 64;
        let bits = self.words[word % 64] >> (from % 64);
        if bits != 0 {
            return Some(from + bits.trailing_zeros() as usize);
        }
        // Words above this one.
        let above = self.summary & (!1u64 << word);
        if above == 0 {
            return None;
        }
        let word = above.trailing_zeros() as usize;
        Some(word * 64 + self.words[word % 64].trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::{BITS, Bitmap};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set(ops in prop::collection::vec((any::<bool>(), 0usize..BITS), 1..200),
                             probes in prop::collection::vec(0usize..5000, 1..50)) {
            let mut bitmap = Bitmap::default();
            let mut set = BTreeSet::new();
            for (add, bit) in ops {
                if add {
                    bitmap.set(bit);
                    set.insert(bit);
                    bitmap.clear_if(bit, false);
                } else {
                    bitmap.clear_if(bit, true);
                    set.remove(&bit);
                }
            }
            for probe in probes.into_iter().chain([BITS - 1, BITS]) {
                prop_assert_eq!(bitmap.next(probe), set.range(probe..).next().copied());
            }
        }
    }
}
