//! Free blocks of a range of sizes, ordered by size.

use crate::ids::BlockId;

/// Free blocks of one size: a doubly linked list through the blocks.
#[derive(Debug, Clone, Copy)]
pub struct SizeList {
    /// Lowest address first.
    pub head: BlockId,
    /// Last block.
    pub tail: BlockId,
}

impl SizeList {
    /// No blocks.
    pub const EMPTY: Self = Self {
        head: BlockId::NONE,
        tail: BlockId::NONE,
    };
}

/// The distinct sizes of a bin, ascending, with their lists. A bin covers 1/64 of an octave, so it holds
/// few distinct sizes; a sorted array is one or two cache lines.
#[derive(Debug, Default)]
pub struct OrderedBin {
    sizes: Vec<(usize, SizeList)>,
}

impl OrderedBin {
    /// The list of `size`, made when absent.
    #[inline]
    pub fn entry(&mut self, size: usize) -> &mut SizeList {
        let at = match self.sizes.binary_search_by_key(&size, |entry| entry.0) {
            Ok(at) => at,
            Err(at) => {
                self.sizes.insert(at, (size, SizeList::EMPTY));
                at
            }
        };
        &mut self.sizes[at].1
    }

    /// Drops the list of `size`, which must be empty.
    #[inline]
    pub fn drop_entry(&mut self, size: usize) {
        if let Ok(at) = self.sizes.binary_search_by_key(&size, |entry| entry.0) {
            self.sizes.remove(at);
        }
    }

    /// The list of the smallest size ≥ `size`.
    #[inline]
    pub fn at_least(&self, size: usize) -> Option<&SizeList> {
        let at = self.sizes.partition_point(|entry| entry.0 < size);
        self.sizes.get(at).map(|entry| &entry.1)
    }

    /// Whether the bin holds nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// Every list, ascending by size.
    pub fn lists(&self) -> impl DoubleEndedIterator<Item = &SizeList> {
        self.sizes.iter().map(|entry| &entry.1)
    }
}
