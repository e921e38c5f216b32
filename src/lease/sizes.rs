//! The free blocks of a lease, by size: lists whose heads a size leads to directly.

use super::table::{Entry, NO_ENTRY, Table};
use crate::size::MOST_STEPPED;

/// Sizes from one power of two to the next that have heads of their own: every one in which blocks are kept.
const STEP_BITS: u32 = 3;
/// A head for each size in such steps of up to 2^32 units.
const HEADS: usize = 32 << STEP_BITS;
/// Free blocks of a size at the most.
const MOST_OF_SIZE: u16 = 32;

#[derive(Debug, Clone, Copy, Default)]
struct Head {
    /// In units of 512 bytes; means nothing while there is no block.
    units: u32,
    /// The one freed last.
    first: u16,
    count: u16,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Sizes {
    heads: [Head; HEADS],
    /// Bytes in them: in blocks of up to [`MOST_STEPPED`], and larger.
    bytes: [usize; 2],
    /// Bytes up to which blocks of either kind are taken.
    most: [usize; 2],
}

/// The head that a size leads to: its highest four bits, and how many follow them.
#[inline]
fn head_of(units: u32) -> usize {
    let octave = (units | 1).ilog2();
    let step = (u64::from(units) << STEP_BITS >> octave) as usize & ((1 << STEP_BITS) - 1);
    ((octave as usize) << STEP_BITS | step) % HEADS
}

#[inline]
fn kind_of(size: usize) -> usize {
    usize::from(size > MOST_STEPPED)
}

impl Sizes {
    pub fn new() -> Self {
        Self {
            heads: [Head::default(); HEADS],
            bytes: [0; 2],
            most: [0; 2],
        }
    }

    /// Forgets all blocks; takes so many bytes from now on.
    pub fn reset(&mut self, most: [usize; 2]) {
        *self = Self::new();
        self.most = most;
    }

    /// Whether there is a block of that size.
    #[inline]
    pub fn has(&self, units: u32) -> bool {
        let head = &self.heads[head_of(units)];
        head.units == units && head.count != 0
    }

    /// Whether a block of that size may be put there.
    #[inline]
    pub fn takes(&self, units: u32, size: usize) -> bool {
        let (head, kind) = (&self.heads[head_of(units)], kind_of(size));
        let fits = head.count == 0 || head.units == units && head.count < MOST_OF_SIZE;
        fits && self.bytes[kind] + size <= self.most[kind]
    }

    /// Puts a free block there.
    #[inline]
    pub fn put(&mut self, at: u16, entry: &mut Entry) {
        let head = &mut self.heads[head_of(entry.units)];
        if head.count == 0 {
            (head.units, head.first) = (entry.units, NO_ENTRY);
        }
        entry.next = head.first;
        head.first = at;
        head.count += 1;
        self.bytes[kind_of(entry.size())] += entry.size();
    }

    /// Takes the block out that was put there last.
    #[inline]
    pub fn take(&mut self, units: u32, table: &Table) -> Option<u16> {
        let head = &mut self.heads[head_of(units)];
        if head.units != units || head.count == 0 {
            return None;
        }
        let at = head.first;
        let entry = table.entry(at);
        head.first = entry.next;
        head.count -= 1;
        self.bytes[kind_of(entry.size())] -= entry.size();
        Some(at)
    }

    /// Blocks of the size, or of one that leads to the same head.
    pub fn rivals(&self, units: u32) -> (u32, u16) {
        let head = &self.heads[head_of(units)];
        (head.units, head.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::{MIN_BLOCK_SIZE, kept_size};

    #[test]
    fn sizes_in_which_blocks_are_kept_have_heads_of_their_own() {
        let mut sizes: Vec<_> = (1..=MOST_STEPPED / 512)
            .map(|n| kept_size(n * 512))
            .collect();
        sizes.dedup();
        let mut heads: Vec<_> = sizes
            .iter()
            .map(|size| head_of((size / 512) as u32))
            .collect();
        heads.sort_unstable();
        heads.dedup();
        assert_eq!(heads.len(), sizes.len());
        assert!(head_of(u32::MAX) < HEADS);
    }

    fn entry(size: usize) -> Entry {
        Entry {
            units: (size / MIN_BLOCK_SIZE) as u32,
            ..Entry::VACANT
        }
    }

    #[test]
    fn no_more_is_taken_than_may_be() {
        const MIB: usize = 1 << 20;
        let (mut sizes, mut table) = (Sizes::new(), Table::new());
        sizes.reset([3 * MIB, 8 * MIB]);
        let mut put = |sizes: &mut Sizes, number: usize, size: usize| {
            let units = (size / MIN_BLOCK_SIZE) as u32;
            if !sizes.takes(units, size) {
                return false;
            }
            let addr = (number + 1) * MIN_BLOCK_SIZE;
            let at = table
                .insert(Entry {
                    addr,
                    ..entry(size)
                })
                .expect("room");
            sizes.put(at, table.entry_mut(at));
            true
        };
        assert!(put(&mut sizes, 0, 2 * MIB) && put(&mut sizes, 1, MIB));
        assert!(!put(&mut sizes, 2, MIN_BLOCK_SIZE), "bytes of small blocks");
        assert!(put(&mut sizes, 2, 5 * MIB) && !put(&mut sizes, 3, 5 * MIB));
        // A size of about the same magnitude leads to the same head.
        assert!(!put(&mut sizes, 3, 5 * MIB + MIN_BLOCK_SIZE));
        sizes.reset([MIB, MIB]);
        for number in 0..usize::from(MOST_OF_SIZE) {
            assert!(put(&mut sizes, 10 + number, 1024));
        }
        assert!(!put(&mut sizes, 9, 1024), "blocks of a size");
        assert!(put(&mut sizes, 9, 2048));
    }
}
