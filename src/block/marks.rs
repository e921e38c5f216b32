//! Marks of live blocks whose free needs no look at them: the map's entry and the mark together tell which block starts
//! at an address. A block is a cache line that a free would wait for where there are many; marks are a byte each.
//!
//! A mark may be lacking, which costs a look, but is never wrong: its block is live, was used on its own stream only and
//! has no flags.

use super::lazy_array::{LazyArray, Zeroable};
use crate::ids::BlockId;
use crate::size::MIN_BLOCK_SIZE;

// SAFETY: a number.
#[allow(unsafe_code)]
unsafe impl Zeroable for u8 {}

/// There is a mark.
const MARKED: u8 = 1 << 7;
/// The block is of the small pool.
const SMALL: u8 = 1 << 6;
/// log2 of the bytes in which an entry of the address map tells addresses apart.
const TOLD_BY_MAP: u32 = 40;
/// log2 of the bytes in which a mark does: blocks at higher addresses get none.
const TOLD: u32 = 46;

/// By block; a power of two of them.
#[derive(Debug)]
pub struct Marks(LazyArray<u8>);

/// What a mark has of an address; `None` where it can't tell that from others.
#[inline]
fn high_part(addr: usize) -> Option<u8> {
    (addr >> TOLD == 0 && addr.is_multiple_of(MIN_BLOCK_SIZE))
        .then_some((addr >> TOLD_BY_MAP) as u8)
}

impl Marks {
    /// Bytes of bookkeeping for a block.
    pub(super) const BYTES: usize = size_of::<u8>();

    /// No mark, for `blocks` blocks (a power of two).
    pub(super) fn new(blocks: usize) -> Self {
        Self(LazyArray::new(blocks))
    }

    /// The same for more blocks.
    pub(super) fn grown(&self, blocks: usize) -> Self {
        Self(self.0.grown(blocks, self.0.len()))
    }

    /// Marks a block that starts at `addr`, if that can be told from others.
    #[inline]
    pub fn set(&mut self, id: BlockId, addr: usize, small: bool) {
        if let Some(high) = high_part(addr) {
            *self.0.at_mut(id.index()) = MARKED | if small { SMALL } else { 0 } | high;
        }
    }

    /// Takes a mark away, if there is one.
    #[inline]
    pub fn clear(&mut self, id: BlockId) {
        *self.0.at_mut(id.index()) = 0;
    }

    /// Takes all marks away.
    pub fn wipe(&mut self) {
        *self = Self::new(self.0.len());
    }

    /// Whether the block has a mark.
    pub fn is_set(&self, id: BlockId) -> bool {
        *self.0.at(id.index()) != 0
    }

    /// Whether the block that the map has for `addr` is marked as the one that starts there, and is of the small pool.
    #[inline]
    pub fn tell(&self, id: BlockId, addr: usize) -> Option<bool> {
        let mark = *self.0.at(id.index());
        let high = high_part(addr)?;
        (mark & !SMALL == MARKED | high).then_some(mark & SMALL != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIB: usize = 1 << TOLD_BY_MAP;

    #[test]
    fn a_mark_tells_what_the_map_does_not() {
        let mut marks = Marks::new(4);
        let (id, addr) = (BlockId(2), 5 * TIB + 512);
        assert_eq!(marks.tell(id, addr), None);
        marks.set(id, addr, true);
        assert_eq!(marks.tell(id, addr), Some(true));
        // The map may have the same entry for these.
        assert_eq!(marks.tell(id, addr + TIB), None);
        assert_eq!(marks.tell(id, addr + 64 * TIB), None, "beyond what is told");
        assert_eq!(marks.tell(id, addr + 8), None, "within the block");
        assert_eq!(marks.tell(BlockId(1), addr), None, "another block");
        let mut more = marks.grown(8);
        assert_eq!(more.tell(id, addr), Some(true));
        assert!(!more.is_set(BlockId(6)));
        more.set(id, addr, false);
        assert_eq!(more.tell(id, addr), Some(false));
        more.clear(id);
        assert_eq!(more.tell(id, addr), None);
    }

    #[test]
    fn what_cannot_be_told_gets_no_mark() {
        let mut marks = Marks::new(4);
        for addr in [64 * TIB, 3 * TIB + 64] {
            marks.set(BlockId(0), addr, true);
            assert!(!marks.is_set(BlockId(0)));
        }
    }
}
