//! Quick lists: freed blocks that are kept as they are, for a request of the same size.
//!
//! Merging a block with its neighbours, and splitting it off again for the next request, changes the index of free
//! blocks four times; a block that is kept changes one cache line. What that costs is memory: requests of other sizes
//! split what merging would have spared. So only sizes that are asked for again and again are kept, up to a limit
//! of bytes, and a line whose size is not asked for any more is given up.

use crate::ids::{BlockId, ListId};
use crate::size::MIN_BLOCK_SIZE;

/// log2 of the number of lines.
const LINE_BITS: u32 = 6;
const LINES: usize = 1 << LINE_BITS;
/// Blocks of a line: what is left of a cache line.
const ROOM: usize = 12;
/// Requests of other sizes that share the line, one after the other, after which its blocks are given up.
const PATIENCE: u16 = 8;
/// Requests from which on freed blocks of their size are kept.
const LEAST_ASKED: u16 = 2;
/// Requests that are remembered: as many of other sizes, and the line is theirs.
const MOST_ASKED: u16 = 8;
/// Bits of a key that tell the size.
const SIZE_BITS: u32 = 40;
/// Fibonacci hashing: 2^64 / golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Blocks of one list and size. A cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line {
    /// Whose blocks, see [`key_of`]. 0: nobody's, no size being 0.
    key: u64,
    count: u32,
    /// Requests of other sizes since one of this size.
    strangers: u16,
    /// Requests of this size, less those of others while there were no blocks.
    asked: u16,
    blocks: [BlockId; ROOM],
}

impl Line {
    const EMPTY: Self = Self {
        key: 0,
        count: 0,
        strangers: 0,
        asked: 0,
        blocks: [BlockId::NONE; ROOM],
    };

    /// Whether it is for blocks of this key, and they are asked for often enough.
    #[inline]
    fn wants(&self, key: u64) -> bool {
        self.key == key && self.asked >= LEAST_ASKED
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct QuickLists {
    /// Made when blocks may be kept for the first time.
    lines: Option<Box<[Line; LINES]>>,
    /// A bit for each line that holds blocks.
    occupied: u64,
    /// Bytes of the blocks.
    bytes: usize,
    /// Bytes up to which blocks are kept.
    most: usize,
}

/// What a request finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A block that was kept. It is kept no more.
    Block(BlockId),
    /// No block.
    Nothing,
    /// No block, and those of the line in its place are to be taken out by [`QuickLists::pop_of`].
    Stale(usize),
}

/// A list and a size, which is a multiple of 512. All from 2^49 on, which no block has but a request may, are one.
#[inline]
fn key_of(list: ListId, size: usize) -> u64 {
    let units = (size / MIN_BLOCK_SIZE) as u64;
    u64::from(list.0) << SIZE_BITS | units.min((1 << SIZE_BITS) - 1)
}

fn size_of_key(key: u64) -> usize {
    (key & ((1 << SIZE_BITS) - 1)) as usize * MIN_BLOCK_SIZE
}

#[inline]
fn line_of(key: u64) -> usize {
    (key.wrapping_mul(MULTIPLIER) >> (64 - LINE_BITS)) as usize
}

impl QuickLists {
    /// Blocks are kept up to so many bytes; 0: none. Those that are kept already stay.
    pub fn limit(&mut self, most: usize) {
        if most > 0 && self.lines.is_none() {
            self.lines = Some(Box::new([Line::EMPTY; LINES]));
        }
        self.most = most;
    }

    /// Whether blocks may be kept.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.most != 0
    }

    /// Bytes of bookkeeping held.
    pub fn heap_bytes(&self) -> usize {
        self.lines.as_ref().map_or(0, |lines| size_of_val(&**lines))
    }

    /// Whether no block is kept.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// A block of exactly `size` bytes for a request of that list: the one kept last.
    #[inline]
    pub fn take(&mut self, list: ListId, size: usize) -> Found {
        let Some(lines) = &mut self.lines else {
            return Found::Nothing;
        };
        let key = key_of(list, size);
        let at = line_of(key);
        let line = &mut lines[at];
        if line.key != key {
            if line.count == 0 {
                if line.asked > 0 {
                    line.asked -= 1;
                } else {
                    line.key = key;
                }
                return Found::Nothing;
            }
            line.strangers += 1;
            if line.strangers < PATIENCE {
                return Found::Nothing;
            }
            return Found::Stale(at);
        }
        line.strangers = 0;
        line.asked = (line.asked + 1).min(MOST_ASKED);
        if line.count == 0 {
            return Found::Nothing;
        }
        line.count -= 1;
        if line.count == 0 {
            self.occupied &= !(1 << at);
        }
        self.bytes -= size;
        // In bounds by itself, but the compiler does not know.
        Found::Block(line.blocks[(line.count as usize).min(ROOM - 1)])
    }

    /// Whether freed blocks of a list and size are kept, as far as there is room.
    #[inline]
    pub fn wants(&self, list: ListId, size: usize) -> bool {
        let Some(lines) = &self.lines else {
            return false;
        };
        let key = key_of(list, size);
        lines[line_of(key)].wants(key) && self.is_on()
    }

    /// Keeps a freed block; false when its size is not asked for often enough, or there is no room.
    #[inline]
    pub fn keep(&mut self, list: ListId, size: usize, block: BlockId) -> bool {
        let Some(lines) = &mut self.lines else {
            return false;
        };
        let key = key_of(list, size);
        let at = line_of(key);
        let line = &mut lines[at];
        let count = line.count as usize;
        if !line.wants(key) || count >= ROOM || self.bytes + size > self.most {
            return false;
        }
        line.blocks[count] = block;
        line.count += 1;
        self.bytes += size;
        self.occupied |= 1 << at;
        true
    }

    /// Takes a block of any line out.
    pub fn pop(&mut self) -> Option<BlockId> {
        let at = self.occupied.trailing_zeros() as usize;
        if at < LINES { self.pop_of(at) } else { None }
    }

    /// Takes a block of one line out; when there is none left, the line is anybody's.
    pub fn pop_of(&mut self, at: usize) -> Option<BlockId> {
        let line = &mut self.lines.as_mut()?[at];
        let Some(left) = line.count.checked_sub(1) else {
            (line.strangers, line.asked) = (0, 0);
            return None;
        };
        line.count = left;
        self.bytes -= size_of_key(line.key);
        if left == 0 {
            self.occupied &= !(1 << at);
        }
        Some(line.blocks[left as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const LIST: ListId = ListId(3);

    /// Quick lists in which a size was asked for often enough.
    fn asked(size: usize) -> QuickLists {
        let mut quick = QuickLists::default();
        quick.limit(usize::MAX);
        for _ in 0..3 {
            assert_eq!(quick.take(LIST, size), Found::Nothing);
        }
        quick
    }

    /// A size that shares the line of another.
    fn neighbour_of(size: usize) -> usize {
        let at = line_of(key_of(LIST, size));
        let shares = |other: &usize| *other != size && line_of(key_of(LIST, *other)) == at;
        (1..).map(|n| n * 512).find(shares).expect("64 lines")
    }

    #[test]
    fn a_line_fills_a_cache_line() {
        assert_eq!(size_of::<Line>(), 64);
    }

    #[test]
    fn the_block_kept_last_is_found_first_and_by_its_size_and_list_alone() {
        let mut quick = asked(1024);
        assert!(quick.keep(LIST, 1024, BlockId(7)) && quick.keep(LIST, 1024, BlockId(8)));
        assert_eq!(quick.take(LIST, 1536), Found::Nothing);
        assert_eq!(quick.take(ListId(4), 1024), Found::Nothing);
        assert_eq!(quick.take(LIST, 1024), Found::Block(BlockId(8)));
        assert_eq!(quick.take(LIST, 1024), Found::Block(BlockId(7)));
        assert_eq!(quick.take(LIST, 1024), Found::Nothing);
        assert!(quick.is_empty());
    }

    #[test]
    fn a_size_asked_for_once_is_not_kept() {
        let mut quick = QuickLists::default();
        quick.limit(usize::MAX);
        assert_eq!(quick.take(LIST, 512), Found::Nothing);
        assert!(!quick.keep(LIST, 512, BlockId(1)));
        assert!(quick.is_empty());
    }

    #[test]
    fn no_more_is_kept_than_the_limit() {
        let mut quick = asked(1 << 20);
        quick.limit(2 << 20);
        let kept = (0..3).map(|id| quick.keep(LIST, 1 << 20, BlockId(id)));
        assert_eq!(kept.collect::<Vec<_>>(), [true, true, false]);
        assert_eq!(quick.pop(), Some(BlockId(1)));
        assert!(quick.keep(LIST, 1 << 20, BlockId(2)));
        quick.limit(0);
        assert!(!quick.is_on() && !quick.keep(LIST, 1 << 20, BlockId(3)));
        assert_eq!(
            (quick.pop(), quick.pop()),
            (Some(BlockId(2)), Some(BlockId(0)))
        );
        assert_eq!(quick.pop(), None);
    }

    #[test]
    fn a_line_is_given_up_when_only_other_sizes_are_asked_for() {
        let mut quick = asked(4096);
        let other = neighbour_of(4096);
        assert!(quick.keep(LIST, 4096, BlockId(5)));
        let found: Vec<Found> = (0..8).map(|_| quick.take(LIST, other)).collect();
        assert_eq!(found[..7], [Found::Nothing; 7]);
        let Found::Stale(line) = found[7] else {
            panic!("{found:?}");
        };
        assert_eq!(quick.pop_of(line), Some(BlockId(5)));
        assert_eq!(quick.pop_of(line), None);
        // Now it is the other's.
        for _ in 0..3 {
            assert_eq!(quick.take(LIST, other), Found::Nothing);
        }
        assert!(quick.keep(LIST, other, BlockId(6)) && !quick.keep(LIST, 4096, BlockId(5)));
    }

    proptest! {
        /// Whatever is done, a block that was kept comes out once, for its own size, and its bytes are counted.
        #[test]
        fn what_is_kept_comes_out_once(ops in prop::collection::vec((0u32..5, 1usize..90), 1..400)) {
            let mut quick = QuickLists::default();
            let most = 40 * 512;
            quick.limit(most);
            let (mut kept, mut next) = (HashSet::new(), 0);
            for (op, n) in ops {
                let size = n * 512;
                match op {
                    0..3 => match quick.take(LIST, size) {
                        Found::Block(id) => prop_assert!(kept.remove(&(id, size))),
                        Found::Nothing => {}
                        Found::Stale(line) => while let Some(id) = quick.pop_of(line) {
                            let found = kept.iter().find(|(other, _)| *other == id).copied();
                            prop_assert!(found.is_some_and(|found| kept.remove(&found)));
                        },
                    },
                    3 => {
                        next += 1;
                        if quick.keep(LIST, size, BlockId(next)) {
                            kept.insert((BlockId(next), size));
                        }
                    }
                    _ => if n == 1 {
                        while let Some(id) = quick.pop() {
                            kept.retain(|(other, _)| *other != id);
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
