//! The index of free blocks of one (pool, stream): best fit in a handful of steps.
//!
//! Sizes up to 2 MiB have a class each (one for every multiple of 512 bytes); above, [`LargeBins`] keep them
//! in order. Bitmaps over both find the first non-empty one. So the block returned is the smallest that fits, and among equals the one with the lowest address as far as
//! [`SizeClass`] can tell.

use std::iter::successors;

use super::arena::{BlockArena, BlockState};
use super::bitmap::{BITS, Bitmap};
use super::large_bins::{LARGE_FROM, LargeBins};
use super::lazy_array::{LazyArray, Zeroable};
use super::size_class::SizeClass;
use crate::ids::BlockId;
use crate::size::MIN_BLOCK_SIZE;

/// Sizes up to `EXACT * 512` have their own class; size `n * 512` is class `n - 1`.
const EXACT: usize = BITS;
const EXACT_LIMIT: usize = EXACT * MIN_BLOCK_SIZE;
const _: () = assert!(EXACT_LIMIT == LARGE_FROM);

/// A class in a cache line of its own.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Line(SizeClass);

// SAFETY: a class is.
#[allow(unsafe_code)]
unsafe impl Zeroable for Line {}

/// Free blocks of one (pool, stream), see the module's text.
#[derive(Debug, Default)]
pub struct FreeIndex {
    exact_bits: Bitmap,
    /// Made when it is used first.
    exact: Option<LazyArray<Line>>,
    large: LargeBins,
    /// Smaller blocks are left out.
    least: usize,
}

/// The class of a size up to [`EXACT_LIMIT`].
#[inline]
fn class_of(size: usize) -> usize {
    size / MIN_BLOCK_SIZE - 1
}

#[cold]
fn new_classes() -> LazyArray<Line> {
    LazyArray::new(EXACT)
}

impl FreeIndex {
    /// An index without blocks below `least` bytes, which no request of its list is for. They are free like the
    /// others, but cost nothing here: between large blocks that begin at multiples of 16 KiB there are many.
    pub fn from_size(least: usize) -> Self {
        Self {
            least,
            ..Self::default()
        }
    }

    /// Whether blocks of that size are left out.
    #[inline]
    pub fn leaves_out(&self, size: usize) -> bool {
        size < self.least
    }

    /// Bytes in the free blocks of the index: a sum over all sizes.
    pub fn bytes(&self, arena: &BlockArena) -> usize {
        self.iter(arena).map(|id| arena[id].size).sum()
    }

    /// Gives back the room of sizes that are no longer free.
    pub fn shrink(&mut self) {
        self.large.shrink();
    }

    /// Bytes of bookkeeping held.
    pub fn heap_bytes(&self) -> usize {
        let exact = self.exact.as_ref().map_or(0, LazyArray::len) * size_of::<Line>();
        exact + self.large.heap_bytes()
    }

    /// Adds a block, whose state becomes `Free`.
    #[inline(always)]
    pub fn insert(&mut self, arena: &mut BlockArena, id: BlockId) {
        let block = &mut arena[id];
        let (addr, size) = (block.addr, block.size);
        block.state = BlockState::Free;
        if self.leaves_out(size) {
            return;
        }
        if size <= EXACT_LIMIT {
            let class = class_of(size);
            self.exact_bits.set(class);
            let classes = self.exact.get_or_insert_with(new_classes);
            classes.at_mut(class).0.insert(arena, id, addr);
        } else {
            self.large.insert(arena, id, addr, size);
        }
    }

    /// Takes a block out; its state becomes `Pending`.
    #[inline(always)]
    pub fn remove(&mut self, arena: &mut BlockArena, id: BlockId) {
        let block = &mut arena[id];
        debug_assert_eq!(block.state, BlockState::Free);
        let (addr, size) = (block.addr, block.size);
        block.state = BlockState::Pending;
        if self.leaves_out(size) {
            return;
        }
        if size <= EXACT_LIMIT {
            let class = class_of(size);
            if let Some(classes) = &mut self.exact {
                let empty = classes.at_mut(class).0.remove(arena, id, addr);
                self.exact_bits.clear_if(class, empty);
            }
        } else {
            self.large.remove(arena, id, addr, size);
        }
    }

    /// The best fit for `size` (a multiple of 512): the smallest block that holds it.
    #[inline]
    pub fn best_fit(&self, size: usize) -> Option<BlockId> {
        Some(self.next_class(size)?.1.first())
    }

    /// Takes the best fit for `size` out; its state becomes `Pending`.
    #[inline(always)]
    pub fn take_best(&mut self, arena: &mut BlockArena, size: usize) -> Option<BlockId> {
        let id = self.best_fit(size)?;
        self.remove(arena, id);
        Some(id)
    }

    /// The size of the smallest block of at least `size` bytes other than `beside`.
    #[inline]
    pub fn next_size(&self, size: usize, beside: BlockId) -> Option<usize> {
        let (found, class) = self.next_class(size)?;
        if class.is_only(beside) {
            return Some(self.next_class(found + MIN_BLOCK_SIZE)?.0);
        }
        Some(found)
    }

    /// The first class with blocks of at least `size` bytes, and its size.
    #[inline]
    fn next_class(&self, size: usize) -> Option<(usize, &SizeClass)> {
        if size <= EXACT_LIMIT
            && let Some(class) = self.exact_bits.next(class_of(size))
            && let Some(classes) = &self.exact
        {
            return Some(((class + 1) * MIN_BLOCK_SIZE, &classes.at(class).0));
        }
        self.large.at_least(size)
    }

    /// Every class that holds blocks, ascending by size, from one of about `size` (a multiple of 512) on.
    fn classes_from(&self, size: usize) -> impl Iterator<Item = &SizeClass> {
        let first = if size <= EXACT_LIMIT {
            self.exact_bits.next(class_of(size))
        } else {
            None
        };
        let exact = successors(first, |at| self.exact_bits.next(at + 1));
        let lines = exact.filter_map(|at| Some(&self.exact.as_ref()?.at(at).0));
        lines.chain(self.large.classes_from(size))
    }

    /// Every block of the index, ascending by size.
    pub fn iter<'a>(&'a self, arena: &'a BlockArena) -> impl Iterator<Item = BlockId> + 'a {
        self.iter_from(arena, MIN_BLOCK_SIZE)
    }

    /// Every block of the index of at least `size` bytes (a multiple of 512), ascending by size.
    pub fn iter_from<'a>(
        &'a self,
        arena: &'a BlockArena,
        size: usize,
    ) -> impl Iterator<Item = BlockId> + 'a {
        self.classes_from(size)
            .skip_while(move |class| arena[class.first()].size < size)
            .flat_map(move |class| class.iter(arena))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ListId, SegmentId};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Debug, Clone)]
    enum Op {
        Insert(usize),
        Remove(usize),
        Fit(usize),
    }

    fn size() -> impl Strategy<Value = usize> {
        prop_oneof![
            1usize..5000,
            4000usize..4200,
            // Of one bin, and of the next.
            40_000usize..40_020,
            40_400usize..40_420,
            1usize..100_000_000
        ]
        .prop_map(|n| n * 512)
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            size().prop_map(Op::Insert),
            any::<usize>().prop_map(Op::Remove),
            size().prop_map(Op::Fit),
        ]
    }

    proptest! {
        /// The reference is an ordered map by (size, address).
        #[test]
        fn best_fit_agrees_with_an_ordered_map(
            ops in prop::collection::vec(op(), 1..300),
            least in prop_oneof![Just(0), Just((1 << 20) + 1)],
        ) {
            let mut arena = BlockArena::default();
            let mut index = FreeIndex::from_size(least);
            let mut left_out = Vec::new();
            let mut model: BTreeMap<(usize, usize), BlockId> = BTreeMap::new();
            let mut addr = 0;
            for op in ops {
                match op {
                    Op::Insert(size) => {
                        // Not monotonic, so that address order matters.
                        addr = (addr + 0x9E37_79B9 * 512) % (1 << 45);
                        let id = arena.insert(addr, size, SegmentId(0), ListId(0));
                        index.insert(&mut arena, id);
                        if size < least {
                            left_out.push(id);
                        } else {
                            model.insert((size, addr), id);
                        }
                    }
                    Op::Remove(at) => {
                        if let Some(id) = left_out.pop() {
                            index.remove(&mut arena, id);
                            prop_assert_eq!(arena[id].state, BlockState::Pending);
                            arena.remove(id);
                        }
                        if model.is_empty() { continue; }
                        let key = *model.keys().nth(at % model.len()).expect("in range");
                        let id = model.remove(&key).expect("present");
                        index.remove(&mut arena, id);
                        arena.remove(id);
                    }
                    Op::Fit(size) => {
                        let expected = model.range((size, 0)..).next().map(|(key, _)| key.0);
                        let found = index.best_fit(size);
                        prop_assert_eq!(found.map(|id| arena[id].size), expected);
                        if let Some(found) = found {
                            let (at, least) = (arena[found].addr, arena[found].size);
                            let next = model.range((size, 0)..).find(|(key, _)| **key != (least, at));
                            prop_assert_eq!(index.next_size(size, found), next.map(|(key, _)| key.0));
                        }
                    }
                }
                prop_assert_eq!(index.bytes(&arena), model.keys().map(|key| key.0).sum::<usize>());
                prop_assert_eq!(index.iter(&arena).count(), model.len());
                for least in [512, 2 << 20, 40_010 * 512, 25_000_000] {
                    let found: Vec<_> = index.iter_from(&arena, least).map(|id| arena[id].size).collect();
                    let expected: Vec<_> = model.range((least, 0)..).map(|(key, _)| key.0).collect();
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }

    #[test]
    fn equal_sizes_come_lowest_address_first() {
        let mut arena = BlockArena::default();
        let mut index = FreeIndex::default();
        for addr in [0x9000, 0x3000, 0x6000] {
            let id = arena.insert(addr, 1024, SegmentId(0), ListId(0));
            index.insert(&mut arena, id);
        }
        let mut order = Vec::new();
        while let Some(id) = index.best_fit(512) {
            index.remove(&mut arena, id);
            order.push(arena[id].addr);
        }
        assert_eq!(order, [0x3000, 0x6000, 0x9000]);
    }
}
