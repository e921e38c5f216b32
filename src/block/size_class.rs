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
    /// Sorted by `keys`; the first `front` of them count.
    ids: [BlockId; FRONT],
    /// Where the blocks lie, in units of 512 bytes, modulo 2^32: good enough to order them.
    keys: [u32; FRONT],
    front: u32,
    /// One more than the first of the others, which are linked through `free_prev` and `free_next`; 0 for
    /// none.
    rest: u32,
}

// SAFETY: numbers; all zero, there are no blocks.
#[allow(unsafe_code)]
unsafe impl Zeroable for SizeClass {}

impl SizeClass {
    /// No blocks.
    pub const EMPTY: Self = Self {
        ids: [BlockId(0); FRONT],
        keys: [0; FRONT],
        front: 0,
        rest: 0,
    };

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.front == 0
    }

    /// A block of the lowest address known. There must be one.
    #[inline]
    pub fn first(&self) -> BlockId {
        self.ids[0]
    }

    /// Whether `id` is all there is.
    #[inline]
    pub fn is_only(&self, id: BlockId) -> bool {
        self.front == 1 && self.rest == 0 && self.ids[0] == id
    }

    /// Adds a block that starts at `addr`.
    #[inline]
    pub fn insert(&mut self, arena: &mut BlockArena, id: BlockId, addr: usize) {
        let key = (addr / MIN_BLOCK_SIZE) as u32;
        if self.front == 0 {
            (self.ids[0], self.keys[0], self.front) = (id, key, 1);
            return;
        }
        self.insert_beside(arena, id, key);
    }

    #[inline(never)]
    fn insert_beside(&mut self, arena: &mut BlockArena, id: BlockId, key: u32) {
        if self.front as usize == FRONT {
            if key > self.keys[FRONT - 1] {
                return self.push_rest(arena, id);
            }
            self.front -= 1;
            self.push_rest(arena, self.ids[FRONT - 1]);
        }
        self.insert_front(id, key);
    }

    /// Adds a block to the front, which has room.
    fn insert_front(&mut self, id: BlockId, key: u32) {
        let mut at = (self.front as usize).min(FRONT - 1);
        self.front += 1;
        while at > 0 && self.keys[at - 1] > key {
            self.keys[at] = self.keys[at - 1];
            self.ids[at] = self.ids[at - 1];
            at -= 1;
        }
        self.keys[at] = key;
        self.ids[at] = id;
    }

    /// Takes a block out; true when none is left.
    #[inline]
    pub fn remove(&mut self, arena: &mut BlockArena, id: BlockId) -> bool {
        if self.is_only(id) {
            self.front = 0;
            return true;
        }
        self.remove_from_many(arena, id)
    }

    #[inline(never)]
    fn remove_from_many(&mut self, arena: &mut BlockArena, id: BlockId) -> bool {
        let Some(found) = self.ids[..(self.front as usize).min(FRONT)]
            .iter()
            .position(|&other| other == id)
        else {
            self.remove_rest(arena, id);
            return false;
        };
        for at in found..FRONT - 1 {
            self.ids[at] = self.ids[at + 1];
            self.keys[at] = self.keys[at + 1];
        }
        self.front -= 1;
        if self.rest != 0 && (self.front as usize) < LOW {
            let id = self.first_other();
            self.remove_rest(arena, id);
            self.insert_front(id, (arena[id].addr / MIN_BLOCK_SIZE) as u32);
        }
        self.front == 0
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
        let front = self.ids.iter().copied().take(self.front as usize);
        let first = self.first_other().some();
        front.chain(std::iter::successors(first, |&id| {
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
                    prop_assert_eq!(class.remove(&mut arena, blocks[n]), model.is_empty());
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
