//! Which handles, by their numbers.

/// A set of handles by their numbers: a bit for each.
#[derive(Debug, Default)]
pub struct NumberSet {
    words: Vec<u64>,
}

impl NumberSet {
    /// Adds a number.
    #[inline]
    pub fn insert(&mut self, number: u32) {
        let (word, bit) = (number as usize / 64, number % 64);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << bit;
    }

    /// Whether a number is in the set.
    #[inline]
    pub fn contains(&self, number: u32) -> bool {
        let word = self.words.get(number as usize / 64);
        word.is_some_and(|word| word >> (number % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_set_has_what_was_put_in(members in prop::collection::btree_set(0u32..300, 0..40)) {
            let mut set = NumberSet::default();
            members.iter().for_each(|&number| set.insert(number));
            for number in 0..400 {
                prop_assert_eq!(set.contains(number), members.contains(&number));
            }
        }
    }
}
