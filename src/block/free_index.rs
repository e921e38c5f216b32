//! The index of free blocks of one (pool, stream): best fit in a handful of steps.
//!
//! Sizes up to 2 MiB have a list each (one for every multiple of 512 bytes); above, a bin covers 1/64 of
//! an octave and keeps its sizes ordered. Bitmaps over both find the first non-empty one. So the block
//! returned is the smallest that fits, and among equals the one with the lowest address as far as
//! [`ORDERED_PREFIX`] blocks of the same size can tell.

use super::arena::{BlockArena, BlockState};
use super::bitmap::Bitmap;
use super::ordered_bin::{OrderedBin, SizeList};
use crate::ids::BlockId;
use crate::size::MIN_BLOCK_SIZE;

/// Sizes up to `EXACT * 512` have their own list.
const EXACT: usize = 4096;
const EXACT_LIMIT: usize = EXACT * MIN_BLOCK_SIZE;
/// log2 of the number of bins in an octave.
const BIN_BITS: u32 = 6;
const FIRST_OCTAVE: u32 = EXACT_LIMIT.ilog2();
const OCTAVES: usize = 48 - FIRST_OCTAVE as usize;
const BINS: usize = OCTAVES << BIN_BITS;

/// How many blocks of one size are kept in address order; further ones go to the end. Bounds the cost
/// of an insertion.
const ORDERED_PREFIX: usize = 16;

/// Free blocks of one (pool, stream), see the module's text.
#[derive(Debug)]
pub struct FreeIndex {
    exact_bits: Bitmap,
    exact: Vec<SizeList>,
    bin_bits: Bitmap,
    bins: Vec<OrderedBin>,
    len: usize,
    bytes: usize,
}

impl Default for FreeIndex {
    fn default() -> Self {
        Self {
            exact_bits: Bitmap::new(EXACT + 1),
            exact: Vec::new(),
            bin_bits: Bitmap::new(BINS),
            bins: Vec::new(),
            len: 0,
            bytes: 0,
        }
    }
}

/// The bin of a size above [`EXACT_LIMIT`].
#[inline]
fn bin_of(size: usize) -> usize {
    let octave = size.ilog2();
    let step = (size >> (octave - BIN_BITS)) & ((1 << BIN_BITS) - 1);
    ((((octave - FIRST_OCTAVE) as usize) << BIN_BITS) | step).min(BINS - 1)
}

impl FreeIndex {
    /// Number of free blocks.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes in free blocks.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a block, whose state becomes `Free`.
    #[inline]
    pub fn insert(&mut self, arena: &mut BlockArena, id: BlockId) {
        let (addr, size) = (arena[id].addr, arena[id].size);
        let list = if size <= EXACT_LIMIT {
            if self.exact.is_empty() {
                self.exact = vec![SizeList::EMPTY; EXACT + 1];
            }
            let class = size / MIN_BLOCK_SIZE;
            self.exact_bits.set(class);
            &mut self.exact[class]
        } else {
            if self.bins.is_empty() {
                self.bins.resize_with(BINS, OrderedBin::default);
            }
            let bin = bin_of(size);
            self.bin_bits.set(bin);
            self.bins[bin].entry(size)
        };
        link(list, arena, id, addr);
        arena[id].state = BlockState::Free;
        self.len += 1;
        self.bytes += size;
    }

    /// Takes a block out; its state becomes `Pending`.
    #[inline]
    pub fn remove(&mut self, arena: &mut BlockArena, id: BlockId) {
        debug_assert_eq!(arena[id].state, BlockState::Free);
        let size = arena[id].size;
        if size <= EXACT_LIMIT {
            let class = size / MIN_BLOCK_SIZE;
            if unlink(&mut self.exact[class], arena, id) {
                self.exact_bits.clear(class);
            }
        } else {
            let bin = bin_of(size);
            if unlink(self.bins[bin].entry(size), arena, id) {
                self.bins[bin].drop_entry(size);
                if self.bins[bin].is_empty() {
                    self.bin_bits.clear(bin);
                }
            }
        }
        arena[id].state = BlockState::Pending;
        self.len -= 1;
        self.bytes -= size;
    }

    /// The best fit for `size` (a multiple of 512): the smallest block that holds it.
    #[inline]
    pub fn best_fit(&self, size: usize) -> Option<BlockId> {
        if size <= EXACT_LIMIT
            && let Some(class) = self.exact_bits.next(size / MIN_BLOCK_SIZE)
        {
            return Some(self.exact[class].head);
        }
        let first = if size <= EXACT_LIMIT { 0 } else { bin_of(size) };
        let bin = self.bin_bits.next(first)?;
        if let Some(list) = self.bins[bin].at_least(size) {
            return Some(list.head);
        }
        // Only the request's own bin can hold smaller blocks alone.
        let bin = self.bin_bits.next(bin + 1)?;
        self.bins[bin].at_least(size).map(|list| list.head)
    }

    /// Every free block, ascending by size.
    pub fn iter<'a>(&'a self, arena: &'a BlockArena) -> impl Iterator<Item = BlockId> + 'a {
        let exact = self.exact.iter();
        let bins = self.bins.iter().flat_map(OrderedBin::lists);
        exact.chain(bins).flat_map(move |list| {
            std::iter::successors(list.head.some(), |&id| arena[id].free_next.some())
        })
    }

    /// The largest free block.
    pub fn largest(&self, arena: &BlockArena) -> Option<BlockId> {
        let bins = self.bins.iter().rev().flat_map(|bin| bin.lists().rev());
        bins.chain(self.exact.iter().rev())
            .find_map(|list| list.head.some())
            .inspect(|&id| {
                debug_assert_eq!(arena[id].state, BlockState::Free);
            })
    }
}

/// Adds a block to the list of its size, see [`ORDERED_PREFIX`].
#[inline]
fn link(list: &mut SizeList, arena: &mut BlockArena, id: BlockId, addr: usize) {
    let mut before = BlockId::NONE;
    let mut after = list.head;
    for step in 0.. {
        let Some(next) = after.some() else { break };
        if arena[next].addr > addr {
            break;
        }
        if step == ORDERED_PREFIX {
            (before, after) = (list.tail, BlockId::NONE);
            break;
        }
        (before, after) = (next, arena[next].free_next);
    }
    match before.some() {
        Some(before) => arena[before].free_next = id,
        None => list.head = id,
    }
    match after.some() {
        Some(after) => arena[after].free_prev = id,
        None => list.tail = id,
    }
    let block = &mut arena[id];
    (block.free_prev, block.free_next) = (before, after);
}

/// Takes a block out of the list of its size; true when the list is empty afterwards.
#[inline]
fn unlink(list: &mut SizeList, arena: &mut BlockArena, id: BlockId) -> bool {
    let (prev, next) = (arena[id].free_prev, arena[id].free_next);
    match prev.some() {
        Some(prev) => arena[prev].free_next = next,
        None => list.head = next,
    }
    match next.some() {
        Some(next) => arena[next].free_prev = prev,
        None => list.tail = prev,
    }
    let block = &mut arena[id];
    (block.free_prev, block.free_next) = (BlockId::NONE, BlockId::NONE);
    !list.head.is_some()
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
        prop_oneof![1usize..5000, 4000usize..4200, 1usize..100_000_000].prop_map(|n| n * 512)
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
        fn best_fit_agrees_with_an_ordered_map(ops in prop::collection::vec(op(), 1..300)) {
            let mut arena = BlockArena::default();
            let mut index = FreeIndex::default();
            let mut model: BTreeMap<(usize, usize), BlockId> = BTreeMap::new();
            let mut addr = 0;
            for op in ops {
                match op {
                    Op::Insert(size) => {
                        // Not monotonic, so that address order matters.
                        addr = (addr + 0x9E37_79B9 * 512) % (1 << 45);
                        let id = arena.insert(addr, size, SegmentId(0), ListId(0));
                        index.insert(&mut arena, id);
                        model.insert((size, addr), id);
                    }
                    Op::Remove(at) => {
                        if model.is_empty() { continue; }
                        let key = *model.keys().nth(at % model.len()).expect("in range");
                        let id = model.remove(&key).expect("present");
                        index.remove(&mut arena, id);
                        arena.remove(id);
                    }
                    Op::Fit(size) => {
                        let expected = model.range((size, 0)..).next().map(|(key, _)| key.0);
                        let found = index.best_fit(size).map(|id| arena[id].size);
                        prop_assert_eq!(found, expected);
                    }
                }
                prop_assert_eq!(index.len(), model.len());
                prop_assert_eq!(index.bytes(), model.keys().map(|key| key.0).sum::<usize>());
                prop_assert_eq!(index.iter(&arena).count(), model.len());
                prop_assert_eq!(
                    index.largest(&arena).map(|id| arena[id].size),
                    model.keys().next_back().map(|key| key.0)
                );
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
