//! Free blocks of one size.

use super::arena::BlockArena;
use super::lazy_array::Zeroable;
use crate::ids::BlockId;
use crate::size::MIN_BLOCK_SIZE;

/// Blocks whose names are kept in the class itself.
const FRONT: usize = 6;
/// The front is filled up again when it holds fewer than this.
const LOW: usize = 3;

/// Free blocks of one size, the ones with the lowest addresses first as far as the front of
/// [`FRONT`] blocks reaches; the others form a list in no order. Lives in one cache line: adding a block
/// and taking one out touch no other block, unless there are more than the front holds.
#[derive(Debug, Clone, Copy)]
pub struct SizeClass {
    /// See [`entry`]; the greatest first, 0 where there is none. So that which blocks there are is no
    /// branch to predict.
    front: [u64; FRONT],
    /// One more than the first of the others, which are linked through `free_prev` and `free_next`; 0 for
    /// none.
    rest: u32,
}

// SAFETY: numbers; all zero, there are no blocks.
#[allow(unsafe_code)]
unsafe impl Zeroable for SizeClass {}

/// Where a block lies, in units of 512 bytes, modulo 2^32 (good enough to order them), and its name, both
/// inverted: greater for lower addresses, and never 0.
#[inline]
fn entry(id: BlockId, addr: usize) -> u64 {
    !((addr / MIN_BLOCK_SIZE) as u64) << 32 | u64::from(!id.0)
}

#[inline]
fn name(entry: u64) -> BlockId {
    BlockId(!(entry as u32))
}

impl SizeClass {
    /// No blocks.
    pub const EMPTY: Self = Self {
        front: [0; FRONT],
        rest: 0,
    };

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.front[0] == 0
    }

    /// A block of the lowest address known. There must be one.
    #[inline]
    pub fn first(&self) -> BlockId {
        name(self.front[0])
    }

    /// Whether `id` is all there is.
    #[inline]
    pub fn is_only(&self, id: BlockId) -> bool {
        self.front[1] == 0 && self.rest == 0 && self.first() == id
    }

    /// Adds a block that starts at `addr`.
    #[inline]
    pub fn insert(&mut self, arena: &mut BlockArena, id: BlockId, addr: usize) {
        let new = entry(id, addr);
        // Most classes hold one block at most.
        if self.is_empty() {
            self.front[0] = new;
        } else if self.front[FRONT - 1] != 0 {
            self.insert_into_full(arena, new);
        } else {
            self.insert_front(new);
        }
    }

    #[cold]
    #[inline(never)]
    fn insert_into_full(&mut self, arena: &mut BlockArena, new: u64) {
        let last = self.front[FRONT - 1];
        if new < last {
            return self.push_rest(arena, name(new));
        }
        self.push_rest(arena, name(last));
        self.front[FRONT - 1] = 0;
        self.insert_front(new);
    }

    /// Adds an entry to the front, which has room: all greater ones stay, the others move up.
    #[inline]
    fn insert_front(&mut self, new: u64) {
        let old = self.front;
        self.front[0] = old[0].max(new);
        for at in 1..FRONT {
            self.front[at] = old[at - 1].min(old[at].max(new));
        }
    }

    /// Takes a block that starts at `addr` out; true when none is left.
    #[inline]
    pub fn remove(&mut self, arena: &mut BlockArena, id: BlockId, addr: usize) -> bool {
        let gone = entry(id, addr);
        if self.front[1] == 0 {
            // The front is never so short while there are others.
            debug_assert!(self.front[0] == gone && self.rest == 0);
            self.front[0] = 0;
            return true;
        }
        if self.rest != 0 {
            return self.remove_from_many(arena, gone);
        }
        self.remove_front(gone);
        false
    }

    /// Takes an entry out of the front: all greater ones stay, the others move down.
    #[inline]
    fn remove_front(&mut self, gone: u64) {
        for at in 0..FRONT {
            let next = self.front.get(at + 1).copied().unwrap_or(0);
            let this = self.front[at];
            self.front[at] = if this > gone { this } else { next };
        }
    }

    #[inline(never)]
    fn remove_from_many(&mut self, arena: &mut BlockArena, gone: u64) -> bool {
        if !self.front.contains(&gone) {
            self.remove_rest(arena, name(gone));
            return false;
        }
        self.remove_front(gone);
        if self.front[LOW - 1] == 0 {
            let id = self.first_other();
            self.remove_rest(arena, id);
            self.insert_front(entry(id, arena[id].addr));
        }
        false
    }

    fn push_rest(&mut self, arena: &mut BlockArena, id: BlockId) {
        let next = self.first_other();
        arena[next].free_prev = id;
        let block = &mut arena[id];
        (block.free_prev, block.free_next) = (BlockId::NONE, next);
        self.rest = id.0 + 1;
    }

    fn remove_rest(&mut self, arena: &mut BlockArena, id: BlockId) {
        let (prev, next) = (arena[id].free_prev, arena[id].free_next);
        match prev.some() {
            Some(prev) => arena[prev].free_next = next,
            None => self.rest = next.0.wrapping_add(1),
        }
        arena[next].free_prev = prev;
    }

    /// [`BlockId::NONE`] when there are no others.
    #[inline]
    fn first_other(&self) -> BlockId {
        BlockId(self.rest.wrapping_sub(1))
    }

    /// Every block.
    pub fn iter<'a>(&'a self, arena: &'a BlockArena) -> impl Iterator<Item = BlockId> + 'a {
        let front = self.front.iter().filter(|entry| **entry != 0);
        let front = front.map(|entry| name(*entry));
        front.chain(std::iter::successors(self.first_other().some(), |&id| {
            arena[id].free_next.some()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ListId, SegmentId};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_class_fits_in_a_cache_line() {
        assert!(size_of::<SizeClass>() <= 56, "{}", size_of::<SizeClass>());
    }

    proptest! {
        #[test]
        fn holds_what_a_map_holds(ops in prop::collection::vec((any::<bool>(), 0usize..40), 1..300)) {
            let mut arena = BlockArena::default();
            let blocks: Vec<BlockId> = (0..40)
                .map(|n| arena.insert(n * 4096, 512, SegmentId(0), ListId(0)))
                .collect();
            let mut class = SizeClass::EMPTY;
            let mut model = BTreeMap::new();
            for (add, n) in ops {
                if add && !model.contains_key(&n) {
                    class.insert(&mut arena, blocks[n], n * 4096);
                    model.insert(n, blocks[n]);
                } else if !add && model.remove(&n).is_some() {
                    prop_assert_eq!(class.remove(&mut arena, blocks[n], n * 4096), model.is_empty());
                }
                let mut held: Vec<_> = class.iter(&arena).collect();
                held.sort_unstable();
                let mut expected: Vec<_> = model.values().copied().collect();
                expected.sort_unstable();
                prop_assert_eq!(held, expected);
                prop_assert_eq!(class.is_empty(), model.is_empty());
                if let Some(lowest) = model.values().next() && model.len() <= LOW {
                    prop_assert_eq!(class.first(), *lowest);
                }
            }
        }
    }
}
