//! Quick lists: freed blocks that are kept as they are, for a request of the same size.
//!
//! Merging a block with its neighbours, and splitting it off again for the next request, changes the index of free
//! blocks four times; keeping it changes one cache line besides its own. What that costs is memory: requests of other
//! sizes split what merging would have spared. So only sizes that are asked for again and again are kept, up to a
//! limit of bytes, and a size that is not asked for any more is given up.
//!
//! Sizes lie in sets of four, as lines do in a processor's cache. The blocks of a size are linked through
//! [`Block::free_next`](super::arena::Block::free_next), which has no other use while they are in no index.

use super::arena::{BlockArena, BlockState};
use super::size_set::{Set, WAYS};
use crate::ids::{BlockId, ListId};
use crate::size::MIN_BLOCK_SIZE;

/// log2 of the number of sets.
const SET_BITS: u32 = 5;
const SETS: usize = 1 << SET_BITS;
/// Slots for sizes.
const SLOTS: usize = SETS * WAYS;
/// Blocks of a size at the most: merging all that are kept is to be a matter of a fraction of a millisecond.
const ROOM: u8 = 64;
/// Requests from which on freed blocks of their size are kept.
const LEAST_ASKED: u8 = 2;
/// Requests that are remembered: the size answers for as many in vain, and its place is another's.
const MOST_ASKED: u8 = 8;
/// Bits of a key that tell the size.
const SIZE_BITS: u32 = 22;
/// Fibonacci hashing: 2^64 / golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// See the module's text.
#[derive(Debug)]
pub struct QuickLists {
    sets: [Set; SETS],
    /// A bit for each set that may hold blocks.
    occupied: u32,
    /// Blocks kept.
    len: u32,
    /// Their bytes.
    bytes: usize,
    /// Bytes up to which blocks are kept.
    most: usize,
}

impl Default for QuickLists {
    fn default() -> Self {
        Self {
            sets: [Set::EMPTY; SETS],
            occupied: 0,
            len: 0,
            bytes: 0,
            most: 0,
        }
    }
}

/// What becomes of a freed block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// It is kept.
    Kept,
    /// Its size is not asked for often enough, or as many of it are kept as may be.
    Unwanted,
    /// As many bytes are kept as may be.
    Full,
}

/// What a request finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A block that was kept. It is kept no more.
    Block(BlockId),
    /// No block.
    Nothing,
    /// No block, and those in this slot are to be given up.
    Stale(Slot),
}

/// Where blocks of one size are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(usize);

/// A list and a size, which is a multiple of 512; 0, the key of no size, for those of which no block is kept: from
/// 2 GiB on, and of lists from the 1024th on.
#[inline]
fn key_of(list: ListId, size: usize) -> u32 {
    let units = size / MIN_BLOCK_SIZE;
    if units >> SIZE_BITS != 0 || list.0 >> (u32::BITS - SIZE_BITS) != 0 {
        return 0;
    }
    list.0 << SIZE_BITS | units as u32
}

#[inline]
fn set_of(key: u32) -> usize {
    (u64::from(key).wrapping_mul(MULTIPLIER) >> (u64::BITS - SET_BITS)) as usize
}

impl QuickLists {
    /// Blocks are kept up to so many bytes; 0: none. Those that are kept already stay.
    pub fn limit(&mut self, most: usize) {
        self.most = most;
    }

    /// Whether blocks may be kept.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.most != 0
    }

    /// Whether no block is kept.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A block of exactly `size` bytes for a request of that list: the one kept last.
    #[inline]
    pub fn take(&mut self, arena: &BlockArena, list: ListId, size: usize) -> Found {
        let key = key_of(list, size);
        if key == 0 {
            return Found::Nothing;
        }
        let at = set_of(key);
        let set = &mut self.sets[at];
        let Some(way) = set.way_of(key) else {
            let stale = set.in_vain(key);
            return stale.map_or(Found::Nothing, |way| Found::Stale(Slot(at * WAYS + way)));
        };
        set.strangers[way] = 0;
        set.used |= 1 << way;
        set.asked[way] = (set.asked[way] + 1).min(MOST_ASKED);
        if set.count[way] == 0 {
            return Found::Nothing;
        }
        self.len -= 1;
        self.bytes -= size;
        Found::Block(set.pop(way, arena))
    }

    /// Whether freed blocks of a list and size are kept, as far as there is room.
    #[inline]
    pub fn wants(&self, list: ListId, size: usize) -> bool {
        if !self.is_on() {
            return false;
        }
        let key = key_of(list, size);
        let set = &self.sets[set_of(key)];
        let way = set.way_of(key);
        way.is_some_and(|way| set.asked[way] >= LEAST_ASKED)
    }

    /// Keeps a freed block, which is in no index, if it may be.
    #[inline]
    pub fn keep(
        &mut self,
        arena: &mut BlockArena,
        list: ListId,
        size: usize,
        block: BlockId,
    ) -> Keep {
        let key = key_of(list, size);
        let at = set_of(key);
        let set = &mut self.sets[at];
        let Some(way) = set.way_of(key) else {
            return Keep::Unwanted;
        };
        if set.asked[way] < LEAST_ASKED || set.count[way] >= ROOM {
            return Keep::Unwanted;
        }
        if self.bytes + size > self.most {
            return Keep::Full;
        }
        let kept = &mut arena[block];
        (kept.state, kept.free_next) = (BlockState::Kept, set.last[way]);
        set.last[way] = block;
        set.count[way] += 1;
        self.len += 1;
        self.bytes += size;
        self.occupied |= 1 << at;
        Keep::Kept
    }

    /// Takes a block of any size out.
    pub fn pop(&mut self, arena: &BlockArena) -> Option<BlockId> {
        while self.occupied != 0 {
            let at = self.occupied.trailing_zeros() as usize;
            let mut slots = (at * WAYS..(at + 1) * WAYS).map(Slot);
            if let Some(id) = slots.find_map(|slot| self.pop_of(arena, slot)) {
                return Some(id);
            }
            self.occupied &= !(1 << at);
        }
        None
    }

    /// Takes a block of one slot out.
    pub fn pop_of(&mut self, arena: &BlockArena, slot: Slot) -> Option<BlockId> {
        let (set, way) = (&mut self.sets[slot.0 / WAYS], slot.0 % WAYS);
        if set.count[way] == 0 {
            return None;
        }
        let id = set.pop(way, arena);
        self.len -= 1;
        self.bytes -= arena[id].size;
        Some(id)
    }

    /// A slot whose blocks were taken out is anybody's.
    pub fn forget(&mut self, slot: Slot) {
        let (set, way) = (&mut self.sets[slot.0 / WAYS], slot.0 % WAYS);
        (set.strangers[way], set.asked[way]) = (0, 0);
    }

    /// Every slot.
    pub fn slots() -> impl Iterator<Item = Slot> {
        (0..SLOTS).map(Slot)
    }

    /// Whether a size was asked for since this was called last.
    pub fn was_used(&mut self, slot: Slot) -> bool {
        let (set, way) = (&mut self.sets[slot.0 / WAYS], slot.0 % WAYS);
        let used = set.used >> way & 1 != 0;
        set.used &= !(1 << way);
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SegmentId;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const LIST: ListId = ListId(3);

    /// Quick lists in which a size was asked for often enough, and an arena.
    fn asked(size: usize) -> (QuickLists, BlockArena) {
        let mut quick = QuickLists::default();
        quick.limit(usize::MAX);
        let arena = BlockArena::default();
        for _ in 0..3 {
            assert_eq!(quick.take(&arena, LIST, size), Found::Nothing);
        }
        (quick, arena)
    }

    fn block(arena: &mut BlockArena, size: usize) -> BlockId {
        arena.insert(0, size, SegmentId(0), LIST)
    }

    /// Whether a block is kept.
    fn keep(
        quick: &mut QuickLists,
        arena: &mut BlockArena,
        list: ListId,
        size: usize,
        id: BlockId,
    ) -> bool {
        let outcome = quick.keep(arena, list, size, id);
        let kept = arena[id].state == BlockState::Kept;
        assert_eq!(outcome == Keep::Kept, kept);
        kept
    }

    /// Other sizes of the same set.
    fn neighbours_of(size: usize) -> impl Iterator<Item = usize> {
        let at = set_of(key_of(LIST, size));
        let shares = move |other: &usize| *other != size && set_of(key_of(LIST, *other)) == at;
        (1..).map(|n| n * 512).filter(shares)
    }

    #[test]
    fn a_set_fills_a_cache_line() {
        assert_eq!(size_of::<Set>(), 64);
    }

    #[test]
    fn the_block_kept_last_is_found_first_and_by_its_size_and_list_alone() {
        let (mut quick, mut arena) = asked(1024);
        let ids = [1024; 2].map(|size| block(&mut arena, size));
        for id in ids {
            assert!(keep(&mut quick, &mut arena, LIST, 1024, id));
        }
        assert_eq!(quick.take(&arena, LIST, 1536), Found::Nothing);
        assert_eq!(quick.take(&arena, ListId(4), 1024), Found::Nothing);
        assert_eq!(quick.take(&arena, LIST, 1024), Found::Block(ids[1]));
        assert_eq!(quick.take(&arena, LIST, 1024), Found::Block(ids[0]));
        assert_eq!(quick.take(&arena, LIST, 1024), Found::Nothing);
        assert!(quick.is_empty());
    }

    #[test]
    fn a_size_asked_for_once_is_not_kept() {
        let (mut quick, mut arena) = (QuickLists::default(), BlockArena::default());
        quick.limit(usize::MAX);
        assert_eq!(quick.take(&arena, LIST, 512), Found::Nothing);
        let id = block(&mut arena, 512);
        assert!(!quick.wants(LIST, 512) && !keep(&mut quick, &mut arena, LIST, 512, id));
        assert!(quick.is_empty());
    }

    #[test]
    fn what_no_key_can_tell_is_not_kept() {
        let (mut quick, mut arena) = asked(2 << 30);
        let id = block(&mut arena, 2 << 30);
        assert!(!quick.wants(LIST, 2 << 30) && !keep(&mut quick, &mut arena, LIST, 2 << 30, id));
        let far = ListId(1 << 10);
        for _ in 0..3 {
            assert_eq!(quick.take(&arena, far, 512), Found::Nothing);
        }
        assert!(!quick.wants(far, 512) && !keep(&mut quick, &mut arena, far, 512, id));
        // The largest of the last list that has one.
        let (last, size) = (ListId((1 << 10) - 1), (2 << 30) - 512);
        for _ in 0..3 {
            assert_eq!(quick.take(&arena, last, size), Found::Nothing);
        }
        assert!(quick.wants(last, size) && keep(&mut quick, &mut arena, last, size, id));
    }

    #[test]
    fn no_more_is_kept_than_the_limit() {
        const SIZE: usize = 1 << 20;
        let (mut quick, mut arena) = asked(SIZE);
        let ids: Vec<_> = (0..5).map(|_| block(&mut arena, SIZE)).collect();
        quick.limit(SIZE - 512);
        assert_eq!(quick.keep(&mut arena, LIST, SIZE, ids[0]), Keep::Full);
        quick.limit(4 * SIZE);
        let kept = ids.iter().map(|id| quick.keep(&mut arena, LIST, SIZE, *id));
        let [yes, no] = [Keep::Kept, Keep::Full];
        assert_eq!(kept.collect::<Vec<_>>(), [yes, yes, yes, yes, no]);
        assert_eq!(quick.pop(&arena), Some(ids[3]));
        assert!(keep(&mut quick, &mut arena, LIST, SIZE, ids[4]));
        quick.limit(0);
        assert!(!quick.is_on() && !quick.wants(LIST, SIZE));
        assert_eq!(quick.keep(&mut arena, LIST, SIZE, ids[0]), Keep::Full);
        let left = std::iter::from_fn(|| quick.pop(&arena));
        assert_eq!(left.collect::<Vec<_>>(), [ids[4], ids[2], ids[1], ids[0]]);
    }

    #[test]
    fn no_more_blocks_of_a_size_are_kept_than_can_be_merged_soon() {
        let (mut quick, mut arena) = asked(512);
        let ids: Vec<_> = (0..100).map(|_| block(&mut arena, 512)).collect();
        let kept = ids
            .iter()
            .filter(|id| keep(&mut quick, &mut arena, LIST, 512, **id));
        assert_eq!(kept.count(), 64);
        assert_eq!(quick.keep(&mut arena, LIST, 512, ids[99]), Keep::Unwanted);
    }

    #[test]
    fn who_merges_all_does_not_forget_what_was_asked_for() {
        let (mut quick, mut arena) = asked(512);
        let id = block(&mut arena, 512);
        for _ in 0..2 {
            arena[id].state = BlockState::Pending;
            assert!(keep(&mut quick, &mut arena, LIST, 512, id));
            assert_eq!((quick.pop(&arena), quick.pop(&arena)), (Some(id), None));
        }
    }

    #[test]
    fn a_size_is_given_up_when_only_others_are_asked_for() {
        let (mut quick, mut arena) = asked(4096);
        let others: Vec<usize> = neighbours_of(4096).take(4).collect();
        for size in &others[..3] {
            for _ in 0..3 {
                assert_eq!(quick.take(&arena, LIST, *size), Found::Nothing);
            }
        }
        let mut ids = Vec::new();
        for size in [4096].iter().chain(&others[..3]) {
            ids.push(block(&mut arena, *size));
            assert!(keep(
                &mut quick,
                &mut arena,
                LIST,
                *size,
                ids[ids.len() - 1]
            ));
        }
        // Four sizes answer for it by turns, eight times each; the first of them is the first to have done so.
        for _ in 0..28 {
            assert_eq!(quick.take(&arena, LIST, others[3]), Found::Nothing);
        }
        let Found::Stale(slot) = quick.take(&arena, LIST, others[3]) else {
            panic!("nothing is given up");
        };
        assert_eq!(quick.pop_of(&arena, slot), Some(ids[0]));
        assert_eq!(quick.pop_of(&arena, slot), None);
        quick.forget(slot);
        // Now it is the other's.
        for _ in 0..3 {
            assert_eq!(quick.take(&arena, LIST, others[3]), Found::Nothing);
        }
        assert!(quick.wants(LIST, others[3]) && !quick.wants(LIST, 4096));
        assert_eq!(quick.take(&arena, LIST, others[0]), Found::Block(ids[1]));
    }

    #[test]
    fn what_was_asked_for_since_the_last_look_is_told() {
        let (mut quick, arena) = asked(512);
        for asks in [0, 1] {
            for _ in 0..asks {
                assert_eq!(quick.take(&arena, LIST, 512), Found::Nothing);
            }
            let mut used = || {
                QuickLists::slots()
                    .filter(|slot| quick.was_used(*slot))
                    .count()
            };
            assert_eq!([used(), used()], [1, 0]);
        }
    }

    proptest! {
        /// Whatever is done, a block that was kept comes out once, for its own size, and its bytes are counted.
        #[test]
        fn what_is_kept_comes_out_once(ops in prop::collection::vec((0u32..5, 1usize..300), 1..600)) {
            let (mut quick, mut arena) = (QuickLists::default(), BlockArena::default());
            let most = 900 * 512;
            quick.limit(most);
            let mut kept = HashSet::new();
            for (op, n) in ops {
                // Some often, and more than there is room for.
                let size = if n < 200 { n % 20 + 1 } else { n } * 512;
                match op {
                    0..3 => match quick.take(&arena, LIST, size) {
                        Found::Block(id) => prop_assert!(kept.remove(&(id, size))),
                        Found::Nothing => {}
                        Found::Stale(slot) => {
                            while let Some(id) = quick.pop_of(&arena, slot) {
                                prop_assert!(kept.remove(&(id, arena[id].size)));
                            }
                            quick.forget(slot);
                        }
                    },
                    3 => {
                        let id = block(&mut arena, size);
                        let wanted = quick.wants(LIST, size);
                        if keep(&mut quick, &mut arena, LIST, size, id) {
                            prop_assert!(wanted);
                            kept.insert((id, size));
                        }
                    }
                    _ => if n == 1 {
                        while let Some(id) = quick.pop(&arena) {
                            prop_assert!(kept.remove(&(id, arena[id].size)));
                        }
                        prop_assert!(kept.is_empty());
                    },
                }
                let bytes: usize = kept.iter().map(|(_, size)| size).sum();
                prop_assert!(bytes == quick.bytes && bytes <= most);
                prop_assert_eq!(quick.is_empty(), kept.is_empty());
            }
        }
    }
}
