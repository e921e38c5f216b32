//! Which block was found at an address last: one load where the address map takes a line of its own, whose tags have to be
//! compared.
//!
//! What is noted is a guess, which the block itself confirms or not: it may be another one's by now.

use super::addr_map::hash_of_addr;
use super::lazy_array::{LazyArray, Zeroable};
use crate::ids::BlockId;

// SAFETY: a number.
#[allow(unsafe_code)]
unsafe impl Zeroable for u32 {}

/// log2 of the entries. With half and twice as many the recorded traces take as much time; with a quarter, the one
/// that has most blocks alive takes more.
const BITS: u32 = 13;

/// By address, each entry the only one for its addresses. None leads to some block, or none.
#[derive(Debug)]
pub struct Lookups(LazyArray<u32>);

impl Default for Lookups {
    fn default() -> Self {
        Self(LazyArray::new(1 << BITS))
    }
}

impl Lookups {
    #[inline]
    fn index_of(addr: usize) -> usize {
        (hash_of_addr(addr) >> (u64::BITS - BITS)) as usize
    }

    /// The block that was noted last for `addr`, or for another address in its place; any, where none was.
    #[inline]
    pub fn guess(&self, addr: usize) -> BlockId {
        BlockId(*self.0.at(Self::index_of(addr)))
    }

    /// Notes the block at `addr`.
    #[inline]
    pub fn set(&mut self, addr: usize, block: BlockId) {
        *self.0.at_mut(Self::index_of(addr)) = block.0;
    }

    /// Bytes of bookkeeping held.
    pub fn heap_bytes(&self) -> usize {
        self.0.len() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_noted_is_guessed_and_a_place_has_one() {
        let mut lookups = Lookups::default();
        let addr = 3 << 30;
        lookups.set(addr, BlockId(7));
        assert_eq!(lookups.guess(addr), BlockId(7));
        lookups.set(addr, BlockId(9));
        assert_eq!(lookups.guess(addr), BlockId(9));
        let shares_place = |other: &usize| Lookups::index_of(*other) == Lookups::index_of(addr);
        let other = (addr + 512..).step_by(512).find(shares_place).expect("one");
        lookups.set(other, BlockId(1));
        assert_eq!(lookups.guess(addr), BlockId(1), "a guess");
    }
}
