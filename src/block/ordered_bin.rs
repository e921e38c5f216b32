//! Free blocks of several sizes, ordered by size.

use super::size_class::SizeClass;

/// A size and its blocks.
pub type Entry = (usize, SizeClass);

/// Distinct sizes, ascending, with their blocks: a few, a cache line each.
#[derive(Debug, Default)]
pub struct OrderedBin {
    sizes: Vec<Entry>,
}

impl OrderedBin {
    /// The class of `size`, made when absent.
    #[inline]
    pub fn entry(&mut self, size: usize) -> &mut SizeClass {
        let at = match self.find(size) {
            Ok(at) => at,
            Err(at) => {
                self.sizes.insert(at, (size, SizeClass::EMPTY));
                at
            }
        };
        &mut self.sizes[at].1
    }

    /// Position of a size, or where it belongs.
    #[inline]
    fn find(&self, size: usize) -> Result<usize, usize> {
        let at = self.sizes.partition_point(|entry| entry.0 < size);
        match self.sizes.get(at) {
            Some(entry) if entry.0 == size => Ok(at),
            _ => Err(at),
        }
    }

    /// Runs `change` on the class of `size`, which is there, and drops it when the answer is that it is
    /// empty.
    #[inline]
    pub fn change(&mut self, size: usize, change: impl FnOnce(&mut SizeClass) -> bool) {
        if let Ok(at) = self.find(size)
            && change(&mut self.sizes[at].1)
        {
            self.sizes.remove(at);
        }
    }

    /// The smallest size ≥ `size`, and its class.
    #[inline]
    pub fn at_least(&self, size: usize) -> Option<(usize, &SizeClass)> {
        let at = self.sizes.partition_point(|entry| entry.0 < size);
        self.sizes.get(at).map(|entry| (entry.0, &entry.1))
    }

    /// Whether the bin holds nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// Bytes of bookkeeping held.
    pub fn heap_bytes(&self) -> usize {
        self.sizes.capacity() * size_of::<Entry>()
    }

    /// Gives back the room of sizes that are no longer here.
    pub fn shrink(&mut self) {
        self.sizes.shrink_to_fit();
    }

    /// Takes the largest size out.
    pub fn pop(&mut self) -> Option<Entry> {
        self.sizes.pop()
    }

    /// The sizes below and above one that is not here, ascending.
    pub fn split_at(&self, size: usize) -> (&[Entry], &[Entry]) {
        let at = self.sizes.partition_point(|entry| entry.0 < size);
        self.sizes.split_at(at)
    }
}
