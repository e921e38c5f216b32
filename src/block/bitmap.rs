//! A set of small integers with constant-time "smallest member ≥ n".

/// Two levels: a summary bit for each 64-bit word. Holds up to 4096 members per summary word.
#[derive(Debug)]
pub struct Bitmap {
    words: Vec<u64>,
    summary: Vec<u64>,
}

impl Bitmap {
    /// A set over `0..bits`.
    pub fn new(bits: usize) -> Self {
        let words = bits.div_ceil(64);
        Self {
            words: vec![0; words],
            summary: vec![0; words.div_ceil(64)],
        }
    }

    /// Adds `bit`.
    #[inline]
    pub fn set(&mut self, bit: usize) {
        let word = bit / 64;
        self.words[word] |= 1 << (bit % 64);
        self.summary[word / 64] |= 1 << (word % 64);
    }

    /// Removes `bit`.
    #[inline]
    pub fn clear(&mut self, bit: usize) {
        let word = bit / 64;
        self.words[word] &= !(1 << (bit % 64));
        if self.words[word] == 0 {
            self.summary[word / 64] &= !(1 << (word % 64));
        }
    }

    /// The smallest member ≥ `from`.
    #[inline]
    pub fn next(&self, from: usize) -> Option<usize> {
        let word = from / 64;
        if word >= self.words.len() {
            return None;
        }
        let bits = self.words[word] >> (from % 64);
        if bits != 0 {
            return Some(from + bits.trailing_zeros() as usize);
        }
        let word = self.next_word(word + 1)?;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    #[inline]
    fn next_word(&self, from: usize) -> Option<usize> {
        let mut index = from / 64;
        if index >= self.summary.len() {
            return None;
        }
        let mut bits = self.summary[index] & (!0u64 << (from % 64));
        while bits == 0 {
            index += 1;
            bits = *self.summary.get(index)?;
        }
        Some(index * 64 + bits.trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::Bitmap;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set(ops in prop::collection::vec((any::<bool>(), 0usize..5000), 1..200),
                             probes in prop::collection::vec(0usize..6000, 1..50)) {
            let mut bitmap = Bitmap::new(5000);
            let mut set = BTreeSet::new();
            for (add, bit) in ops {
                if add { bitmap.set(bit); set.insert(bit); } else { bitmap.clear(bit); set.remove(&bit); }
            }
            for probe in probes {
                prop_assert_eq!(bitmap.next(probe), set.range(probe..).next().copied());
            }
        }
    }
}
