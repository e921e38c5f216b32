//! Small numbers for physical handles, which are addresses or counters of the driver's.

use std::collections::HashMap;

use crate::driver::PhysicalHandle;
use crate::mix::BuildMix;

/// A number for each handle that was ever mapped, below the most there were at one time.
#[derive(Debug, Default)]
pub struct PageNumbers {
    of: HashMap<PhysicalHandle, u32, BuildMix>,
    /// Below `next`, and no handle's.
    vacant: Vec<u32>,
    next: u32,
}

impl PageNumbers {
    /// The handle's number; a new one where it has none.
    pub fn give(&mut self, handle: PhysicalHandle) -> u32 {
        let (vacant, next) = (&mut self.vacant, &mut self.next);
        *self.of.entry(handle).or_insert_with(|| {
            vacant.pop().unwrap_or_else(|| {
                *next += 1;
                *next - 1
            })
        })
    }

    /// The handle's number, if it has one.
    pub fn get(&self, handle: PhysicalHandle) -> Option<u32> {
        self.of.get(&handle).copied()
    }

    /// How many handles have one.
    pub fn count(&self) -> usize {
        self.of.len()
    }

    /// Whether each number is a handle's or vacant, and none both.
    pub fn all_known(&self) -> bool {
        self.of.len() + self.vacant.len() == self.next as usize
    }

    /// Parts a handle that nothing is said of any more from its number, which may be another's. To be done before the
    /// driver has the handle back: what it gives next may be equal.
    pub fn take_back(&mut self, handle: PhysicalHandle) {
        let number = self.part(handle);
        self.vacant.extend(number);
    }

    /// Parts a handle from its number, which stays with nobody until [`Self::give_up`] or [`Self::restore`].
    pub fn part(&mut self, handle: PhysicalHandle) -> Option<u32> {
        self.of.remove(&handle)
    }

    /// The driver has the handle of a number back.
    pub fn give_up(&mut self, number: u32) {
        self.vacant.push(number);
    }

    /// The driver did not take the handle of a number back.
    pub fn restore(&mut self, handle: PhysicalHandle, number: u32) {
        self.of.insert(handle, number);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_handle_has_a_number_of_its_own(ops in prop::collection::vec((0..5, 0usize..40), 0..200)) {
            let mut numbers = PageNumbers::default();
            let (mut known, mut most) = (BTreeMap::new(), 0);
            for (what, handle) in ops {
                let handle = PhysicalHandle(handle << 21);
                match what {
                    0 => {
                        numbers.take_back(handle);
                        known.remove(&handle.0);
                    }
                    1 => {
                        let parted = numbers.part(handle);
                        prop_assert_eq!(parted, known.remove(&handle.0));
                        prop_assert_eq!(numbers.get(handle), None);
                        parted.into_iter().for_each(|number| numbers.give_up(number));
                    }
                    2 => {
                        if let Some(number) = numbers.part(handle) {
                            numbers.restore(handle, number);
                        }
                    }
                    _ => {
                        let number = numbers.give(handle);
                        prop_assert_eq!(*known.entry(handle.0).or_insert(number), number);
                    }
                }
                prop_assert!(numbers.all_known());
                most = most.max(known.len());
                let mut given: Vec<u32> = known.values().copied().collect();
                given.sort_unstable();
                given.dedup();
                prop_assert_eq!(given.len(), known.len());
                prop_assert!(given.last().is_none_or(|&last| (last as usize) < most));
            }
            for (&handle, &number) in &known {
                prop_assert_eq!(numbers.get(PhysicalHandle(handle)), Some(number));
            }
        }
    }
}
