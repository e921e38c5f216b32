//! Free blocks of one size.

use super::arena::BlockArena;
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
    /// Sorted by `keys`; [`BlockId::NONE`] from `count` on.
    ids: [BlockId; FRONT],
    /// Where the blocks lie, in units of 512 bytes, modulo 2^32: good enough to order them.
    keys: [u32; FRONT],
    /// First of the other blocks, linked through `free_prev` and `free_next`.
    rest: BlockId,
    count: u32,
}

impl SizeClass {
    /// No blocks.
    pub const EMPTY: Self = Self {
        ids: [BlockId::NONE; FRONT],
        keys: [0; FRONT],
        rest: BlockId::NONE,
        count: 0,
    };

    /// A block of the lowest address known.
    #[inline]
    pub fn first(&self) -> BlockId {
        self.ids[0]
    }

    /// Whether `id` is all there is.
    #[inline]
    pub fn is_only(&self, id: BlockId) -> bool {
        self.count == 1 && self.ids[0] == id && !self.rest.is_some()
    }

    /// Adds a block that starts at `addr`.
    #[inline]
    pub fn insert(&mut self, arena: &mut BlockArena, id: BlockId, addr: usize) {
        let key = (addr / MIN_BLOCK_SIZE) as u32;
        if self.count == 0 {
            (self.ids[0], self.keys[0], self.count) = (id, key, 1);
            return;
        }
        self.insert_beside(arena, id, key);
    }

    #[inline(never)]
    fn insert_beside(&mut self, arena: &mut BlockArena, id: BlockId, key: u32) {
        if self.count as usize == FRONT {
            if key > self.keys[FRONT - 1] {
                return self.push_rest(arena, id);
            }
            self.count -= 1;
            self.push_rest(arena, self.ids[FRONT - 1]);
        }
        self.insert_front(id, key);
    }

    /// Adds a block to the front, which has room.
    fn insert_front(&mut self, id: BlockId, key: u32) {
        let mut at = (self.count as usize).min(FRONT - 1);
        self.count += 1;
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
            (self.ids[0], self.count) = (BlockId::NONE, 0);
            return true;
        }
        self.remove_from_many(arena, id)
    }

    #[inline(never)]
    fn remove_from_many(&mut self, arena: &mut BlockArena, id: BlockId) -> bool {
        let Some(found) = self.ids.iter().position(|&other| other == id) else {
            self.remove_rest(arena, id);
            return false;
        };
        for at in found..FRONT - 1 {
            self.ids[at] = self.ids[at + 1];
            self.keys[at] = self.keys[at + 1];
        }
        self.ids[FRONT - 1] = BlockId::NONE;
        self.count -= 1;
        if self.rest.is_some() && (self.count as usize) < LOW {
            let id = self.rest;
            self.remove_rest(arena, id);
            self.insert_front(id, (arena[id].addr / MIN_BLOCK_SIZE) as u32);
        }
        self.count == 0
    }

    fn push_rest(&mut self, arena: &mut BlockArena, id: BlockId) {
        if let Some(next) = self.rest.some() {
            arena[next].free_prev = id;
        }
        let block = &mut arena[id];
        (block.free_prev, block.free_next) = (BlockId::NONE, self.rest);
        self.rest = id;
    }

    fn remove_rest(&mut self, arena: &mut BlockArena, id: BlockId) {
        let (prev, next) = (arena[id].free_prev, arena[id].free_next);
        match prev.some() {
            Some(prev) => arena[prev].free_next = next,
            None => self.rest = next,
        }
        if let Some(next) = next.some() {
            arena[next].free_prev = prev;
        }
    }

    /// Every block.
    pub fn iter<'a>(&'a self, arena: &'a BlockArena) -> impl Iterator<Item = BlockId> + 'a {
        let front = self.ids.iter().copied().filter(|id| id.is_some());
        front.chain(std::iter::successors(self.rest.some(), |&id| {
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
                prop_assert_eq!(class.first().is_some(), !model.is_empty());
                if model.len() <= LOW {
                    prop_assert_eq!(Some(class.first()), model.values().next().copied().or(Some(BlockId::NONE)));
                }
            }
        }
    }
}
