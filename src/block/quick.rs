//! Quick lists: freed blocks that are kept as they are, for a request of the same size.
//!
//! Merging a block with its neighbours, and splitting it off again for the next request, changes the index of free
//! blocks four times; keeping it changes one cache line besides its own. What that costs is memory: requests of other
//! sizes split what merging would have spared. So only sizes that are asked for again and again are kept, up to a
//! limit of bytes, and a size that is not asked for any more is given up. A block that would take much of that limit
//! alone is not kept.
//!
//! Sizes lie in sets of four, as lines do in a processor's cache. The blocks of a size are linked through
//! [`Block::free_next`](super::arena::Block::free_next), which has no other use while they are in no index.

mod limits;

pub use limits::Limits;

use super::arena::{BlockArena, BlockState};
use super::size_set::{Set, WAYS};
use crate::ids::{BlockId, ListId};
use crate::size::{MIN_BLOCK_SIZE, MOST_STEPPED, align_up, kept_step};

/// log2 of the number of sets.
const SET_BITS: u32 = 6;
const SETS: usize = 1 << SET_BITS;
/// Slots for sizes.
const SLOTS: usize = SETS * WAYS;
/// Blocks of a size at the most, which is what its counter holds.
const ROOM: u8 = u8::MAX;
/// Blocks of all sizes at the most: merging all that are kept is to be a matter of a fraction of a millisecond.
const MOST_KEPT: u32 = 4096;
/// Requests from which on freed blocks of their size are kept.
const LEAST_ASKED: u8 = 2;
/// Requests that are remembered: the size answers for as many in vain, and its place is another's.
const MOST_ASKED: u8 = 8;
/// Bits of a key that tell the size.
const SIZE_BITS: u32 = 22;
/// The same where none above [`MOST_STEPPED`] is kept.
const SMALL_SIZE_BITS: u32 = 13;
/// Fibonacci hashing: 2^64 / golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// See the module's text.
#[derive(Debug)]
pub struct QuickLists {
    sets: [Set; SETS],
    /// A bit for each set that may hold blocks of either kind.
    occupied: [u64; 2],
    /// Blocks kept.
    len: u32,
    /// Their bytes: up to [`MOST_STEPPED`] each, and larger.
    bytes: [usize; 2],
    /// Bytes up to which blocks of either kind are kept.
    most: [usize; 2],
    /// See [`Limits::largest`].
    largest: usize,
    /// See [`Limits::stepped`].
    stepped: usize,
    /// What is left of [`Limits::beyond`], in units of [`MIN_BLOCK_SIZE`]; below 0: nothing.
    beyond: i64,
    /// Units of 512 bytes have so many bits in sizes that are kept.
    size_bits: u32,
}

impl Default for QuickLists {
    fn default() -> Self {
        Self {
            sets: [Set::EMPTY; SETS],
            occupied: [0; 2],
            len: 0,
            bytes: [0; 2],
            most: [0; 2],
            largest: 0,
            stepped: 0,
            beyond: i64::MAX,
            size_bits: SIZE_BITS,
        }
    }
}

/// What becomes of a freed block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// It is kept.
    Kept,
    /// Its size is not asked for often enough, as many of it are kept as may be, or it is too large.
    Unwanted,
    /// As much is kept as may be.
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
fn key_of(list: ListId, size: usize, size_bits: u32) -> u32 {
    let units = (size / MIN_BLOCK_SIZE) as u64;
    let list = u64::from(list.0);
    // One test, not two.
    if units >> size_bits | list >> (u32::BITS - SIZE_BITS) != 0 {
        return 0;
    }
    (list << SIZE_BITS | units) as u32
}

/// The size in a key.
#[inline]
fn size_in(key: u32) -> usize {
    (key & ((1 << SIZE_BITS) - 1)) as usize * MIN_BLOCK_SIZE
}

#[inline]
fn set_of(key: u32) -> usize {
    (u64::from(key).wrapping_mul(MULTIPLIER) >> (u64::BITS - SET_BITS)) as usize
}

/// Which of the two kinds a block is of: up to [`MOST_STEPPED`] bytes, larger.
#[inline]
fn kind_of(size: usize) -> usize {
    usize::from(size > MOST_STEPPED)
}

impl QuickLists {
    /// So much is kept from now on. Blocks that are kept already stay.
    pub fn limit(&mut self, limits: Limits) {
        self.most = [limits.small, limits.large];
        (self.largest, self.stepped) = (limits.largest, limits.stepped);
        self.allow_steps(limits.beyond);
        self.size_bits = if limits.large > 0 {
            SIZE_BITS
        } else {
            SMALL_SIZE_BITS
        };
    }

    /// Bytes up to which blocks of either kind are kept.
    pub(crate) fn most(&self) -> [usize; 2] {
        self.most
    }

    /// Whether blocks may be kept.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.most[0] != 0
    }

    /// Whether a block of `size` bytes might be kept.
    #[inline]
    pub fn may_keep(&self, size: usize) -> bool {
        self.is_on() && (size / MIN_BLOCK_SIZE) >> self.size_bits == 0
    }

    /// Whether no block is kept.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The size of the block for a request of `size` bytes that finds none kept.
    #[inline]
    pub fn size_of_block(&self, size: usize) -> usize {
        if size <= self.stepped {
            align_up(size, kept_step(size))
        } else {
            size
        }
    }

    /// Whether blocks above [`MOST_STEPPED`] may be kept, too.
    pub fn keeps_large(&self) -> bool {
        self.most[1] != 0
    }

    /// See [`Limits::beyond`]. Without it requests get blocks of their own sizes, until limits are set again.
    #[inline]
    pub fn allow_steps(&mut self, beyond: Option<usize>) {
        let Some(beyond) = beyond else {
            (self.stepped, self.beyond) = (0, i64::MAX);
            return;
        };
        // It is asked after the block that takes too much.
        let beyond = beyond as i64 - kept_step(MOST_STEPPED) as i64;
        self.beyond = beyond / MIN_BLOCK_SIZE as i64;
    }

    /// Notes that a block which was kept has so many units beyond what counts. Whether that is more than it may be.
    #[inline(always)]
    pub fn spend(&mut self, units: u16) -> bool {
        self.beyond -= i64::from(units);
        self.beyond < 0
    }

    /// Whether requests up to [`MOST_STEPPED`] get blocks of few sizes.
    pub fn has_steps(&self) -> bool {
        self.stepped != 0
    }

    /// A block of exactly `size` bytes for a request of that list: the one kept last.
    // Its answer would come back through memory, which took up to 3 % of a recorded trace's time in the shipped library.
    #[inline(always)]
    pub fn take(&mut self, arena: &BlockArena, list: ListId, size: usize) -> Found {
        let key = key_of(list, size, self.size_bits);
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
        set.asked[way] += u8::from(set.asked[way] < MOST_ASKED);
        if set.count[way] == 0 {
            return Found::Nothing;
        }
        self.len -= 1;
        self.bytes[kind_of(size)] -= size;
        Found::Block(set.pop(way, arena))
    }

    /// As [`Self::take`], for another reason than a request of that size.
    pub fn take_unasked(
        &mut self,
        arena: &BlockArena,
        list: ListId,
        size: usize,
    ) -> Option<BlockId> {
        let key = key_of(list, size, self.size_bits);
        let at = set_of(key);
        let way = self.sets[at].way_of(key)?;
        self.pop_of(arena, Slot(at * WAYS + way))
    }

    /// As [`Self::take_unasked`], where more than one is kept: again and again it takes all but one.
    pub fn take_spare(&mut self, arena: &BlockArena, list: ListId, size: usize) -> Option<BlockId> {
        let key = key_of(list, size, self.size_bits);
        let at = set_of(key);
        let way = self.sets[at].way_of(key)?;
        let spare = self.sets[at].count[way] > 1;
        spare
            .then(|| self.pop_of(arena, Slot(at * WAYS + way)))
            .flatten()
    }

    /// Whether freed blocks of a list and size are kept, as far as there is room and they are not too large.
    #[inline(always)]
    pub fn wants(&self, list: ListId, size: usize) -> bool {
        if !self.is_on() {
            return false;
        }
        let key = key_of(list, size, self.size_bits);
        let set = &self.sets[set_of(key)];
        let way = set.way_of(key);
        way.is_some_and(|way| set.asked[way] >= LEAST_ASKED)
    }

    /// Whether as many blocks of both kinds are kept as may be.
    pub fn is_full(&self) -> bool {
        self.len >= MOST_KEPT
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
        let key = key_of(list, size, self.size_bits);
        let at = set_of(key);
        let full = self.is_full();
        let set = &mut self.sets[at];
        let Some(way) = set.way_of(key) else {
            return Keep::Unwanted;
        };
        if set.asked[way] < LEAST_ASKED || set.count[way] == ROOM || size > self.largest {
            return Keep::Unwanted;
        }
        let kind = kind_of(size);
        if self.bytes[kind] + size > self.most[kind] || full {
            return Keep::Full;
        }
        let kept = &mut arena[block];
        (kept.state, kept.free_next) = (BlockState::Kept, set.last[way]);
        set.last[way] = block;
        set.count[way] += 1;
        self.len += 1;
        self.bytes[kind] += size;
        self.occupied[kind] |= 1 << at;
        Keep::Kept
    }

    /// Takes a block of any size out.
    pub fn pop(&mut self, arena: &BlockArena) -> Option<BlockId> {
        for kind in 0..2 {
            while self.occupied[kind] != 0 {
                let at = self.occupied[kind].trailing_zeros() as usize;
                let mut slots = (at * WAYS..(at + 1) * WAYS).map(Slot);
                if let Some(id) = slots.find_map(|slot| self.pop_of(arena, slot)) {
                    return Some(id);
                }
                self.occupied[kind] &= !(1 << at);
            }
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
        let size = arena[id].size;
        self.bytes[kind_of(size)] -= size;
        Some(id)
    }

    /// A slot whose blocks were taken out is anybody's.
    pub fn forget(&mut self, slot: Slot) {
        let (set, way) = (&mut self.sets[slot.0 / WAYS], slot.0 % WAYS);
        (set.strangers[way], set.asked[way]) = (0, 0);
    }

    /// Whether a block above [`MOST_STEPPED`] is kept.
    #[inline]
    pub fn holds_large(&self) -> bool {
        self.bytes[1] != 0
    }

    /// The slots of a list (`None`: of all) that hold blocks above [`MOST_STEPPED`], or with `large` false up to there; of
    /// those, with `unused`, the ones whose size was not asked for since this was called last.
    pub fn holding(
        &mut self,
        list: Option<ListId>,
        large: bool,
        unused: bool,
    ) -> impl Iterator<Item = Slot> + use<> {
        let kind = usize::from(large);
        let concerned = |key| list.is_none_or(|list| key >> SIZE_BITS == list.0);
        let mut found = [0_u64; SLOTS / 64];
        for at in ones(self.occupied[kind]) {
            let set = &mut self.sets[at];
            let (mut holds, mut ways) = (false, 0);
            for way in 0..WAYS {
                let key = set.keys[way];
                if set.count[way] != 0 && kind_of(size_in(key)) == kind {
                    holds = true;
                    ways |= u8::from(concerned(key)) << way;
                }
            }
            if !holds {
                self.occupied[kind] &= !(1 << at);
            }
            let spared = if unused { set.used } else { 0 };
            set.used &= !ways;
            let slot = at * WAYS;
            found[slot / 64] |= u64::from(ways & !spared) << (slot % 64);
        }
        let words = found.into_iter().enumerate();
        words.flat_map(|(at, word)| ones(word).map(move |bit| Slot(at * 64 + bit)))
    }
}

/// The places of the bits that are set.
fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(at)
    })
}

#[cfg(test)]
mod tests;
