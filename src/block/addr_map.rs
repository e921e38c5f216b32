//! Address → live block in one probe: buckets of a cache line with room for seven blocks. What finds its
//! bucket full goes to the next one that has room, and the buckets it passed count it, so that a lookup
//! knows where to stop and a deletion moves nothing.
//!
//! An entry is 8 bytes: the block's name, and 31 bits of its address to tell it from its neighbours in the
//! bucket. The block itself, which whoever looks it up needs anyway, has the last word.

use super::arena::BlockArena;
use crate::ids::BlockId;
use crate::size::MIN_BLOCK_SIZE;

/// Fibonacci hashing: 2^64 / golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
const MIN_BUCKETS: usize = 128;
/// Entries of a bucket.
const ROOM: usize = 7;
const EVERY: u32 = (1 << ROOM) - 1;

#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    /// See [`tag_of`]; 0 in an empty place.
    tags: [u32; ROOM],
    /// Entries that belong here or before here and lie behind.
    passed: u32,
    blocks: [BlockId; ROOM],
}

const EMPTY: Bucket = Bucket {
    tags: [0; ROOM],
    passed: 0,
    blocks: [BlockId::NONE; ROOM],
};

impl Bucket {
    /// A bit for each place with this tag.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    fn places(&self, tag: u32) -> u32 {
        let same = |at: usize| u32::from(self.tags[at] == tag) << at;
        (0..ROOM).fold(0, |places, at| places | same(at))
    }

    /// A bit for each place with this tag: all of them compared at once.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[allow(unsafe_code)]
    fn places(&self, tag: u32) -> u32 {
        use std::arch::x86_64::{
            _mm_cmpeq_epi32, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32, _mm_set_epi32,
            _mm_set1_epi32, _mm_setzero_si128,
        };
        let [a, b, c, d, e, f, g] = self.tags.map(u32::cast_signed);
        let passed = self.passed.cast_signed();
        // SAFETY: SSE2 is part of every x86-64.
        let bytes = unsafe {
            let tag = _mm_set1_epi32(tag.cast_signed());
            let low = _mm_cmpeq_epi32(_mm_set_epi32(d, c, b, a), tag);
            let high = _mm_cmpeq_epi32(_mm_set_epi32(passed, g, f, e), tag);
            _mm_movemask_epi8(_mm_packs_epi16(
                _mm_packs_epi32(low, high),
                _mm_setzero_si128(),
            ))
        };
        bytes.cast_unsigned() & EVERY
    }
}

/// Where an entry lies, until the map grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    bucket: u32,
    at: u32,
}

impl Place {
    /// Stands for none.
    pub const NONE: Self = Self {
        bucket: u32::MAX,
        at: 0,
    };
}

/// The address in units of 512 bytes, modulo 2^31, and a bit that tells it from none: the same for two
/// blocks only when they are a multiple of 1 TiB apart.
#[inline]
fn tag_of(addr: usize) -> u32 {
    (addr / MIN_BLOCK_SIZE) as u32 | 1 << 31
}

/// The live blocks of a device by start address.
#[derive(Debug)]
pub struct AddrMap {
    buckets: Box<[Bucket]>,
    shift: u32,
    len: usize,
    /// Entries at which the map grows: four and a half for each bucket, so that few find theirs full.
    most: usize,
}

impl Default for AddrMap {
    fn default() -> Self {
        Self::with_buckets(MIN_BUCKETS)
    }
}

impl AddrMap {
    fn with_buckets(buckets: usize) -> Self {
        Self {
            buckets: vec![EMPTY; buckets].into(),
            shift: 64 - buckets.ilog2(),
            len: 0,
            most: buckets * 9 / 2,
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of bookkeeping held.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        (u64::from(tag).wrapping_mul(MULTIPLIER) >> self.shift) as usize
    }

    /// Adds a block that is not in the map.
    #[inline]
    pub fn insert(&mut self, addr: usize, block: BlockId) {
        if self.len >= self.most {
            self.grow();
        }
        self.len += 1;
        self.place(tag_of(addr), block);
    }

    #[inline]
    fn place(&mut self, tag: u32, block: BlockId) {
        let mut at = self.home(tag);
        let mask = self.buckets.len() - 1;
        loop {
            let bucket = &mut self.buckets[at & mask];
            let vacant = bucket.places(0);
            if vacant != 0 {
                let place = vacant.trailing_zeros() as usize % 8;
                if let (Some(slot), Some(name)) =
                    (bucket.tags.get_mut(place), bucket.blocks.get_mut(place))
                {
                    (*slot, *name) = (tag, block);
                }
                return;
            }
            bucket.passed += 1;
            at += 1;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let mut grown = Self::with_buckets(self.buckets.len() * 2);
        grown.len = self.len;
        for bucket in &self.buckets {
            for (tag, block) in bucket.tags.iter().zip(bucket.blocks) {
                if *tag != 0 {
                    grown.place(*tag, block);
                }
            }
        }
        *self = grown;
    }

    /// The live block that starts at `addr`, and where its entry lies.
    #[inline]
    pub fn find(&self, addr: usize, arena: &BlockArena) -> Option<(Place, BlockId)> {
        let tag = tag_of(addr);
        let mask = self.buckets.len() - 1;
        let home = self.home(tag);
        for at in home..=home + mask {
            let bucket = &self.buckets[at & mask];
            let mut places = bucket.places(tag);
            while places != 0 {
                let place = places.trailing_zeros();
                if let Some(&block) = bucket.blocks.get(place as usize)
                    && arena[block].addr == addr
                {
                    let bucket = (at & mask) as u32;
                    return Some((Place { bucket, at: place }, block));
                }
                places &= places - 1;
            }
            if bucket.passed == 0 {
                break;
            }
        }
        None
    }

    /// The live block that starts at `addr`.
    #[inline]
    pub fn get(&self, addr: usize, arena: &BlockArena) -> Option<BlockId> {
        self.find(addr, arena).map(|(_, block)| block)
    }

    /// Takes the entry of `addr` out.
    #[inline]
    pub fn remove(&mut self, addr: usize, arena: &BlockArena) -> Option<BlockId> {
        let (place, block) = self.find(addr, arena)?;
        self.remove_at(place);
        Some(block)
    }

    /// Takes an entry out by its place.
    #[inline]
    pub fn remove_at(&mut self, place: Place) {
        let found = place.bucket as usize;
        let mask = self.buckets.len() - 1;
        let tags = &mut self.buckets[found & mask].tags;
        let Some(slot) = tags.get_mut(place.at as usize) else {
            return;
        };
        let tag = std::mem::take(slot);
        debug_assert_ne!(tag, 0);
        self.len -= 1;
        let home = self.home(tag);
        if home != found {
            self.uncount(home, found);
        }
    }

    #[cold]
    fn uncount(&mut self, home: usize, found: usize) {
        let mask = self.buckets.len() - 1;
        let mut at = home;
        while at != found {
            self.buckets[at].passed -= 1;
            at = (at + 1) & mask;
        }
    }

    /// Every block.
    pub fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.buckets.iter().flat_map(|bucket| {
            let entries = bucket.tags.iter().zip(bucket.blocks);
            entries.filter_map(|(tag, block)| (*tag != 0).then_some(block))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ListId, SegmentId};
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn block(arena: &mut BlockArena, addr: usize) -> BlockId {
        arena.insert(addr, 512, SegmentId(0), ListId(0))
    }

    proptest! {
        #[test]
        fn agrees_with_a_hash_map(ops in prop::collection::vec((any::<bool>(), 1usize..600), 1..4000)) {
            let mut arena = BlockArena::default();
            let mut map = AddrMap::default();
            let mut model = HashMap::new();
            // Every third address shares its tag with another one.
            let addr_of = |key: usize| if key % 3 == 0 { (key / 3) * 512 + (1 << 41) } else { key * 512 };
            for (add, key) in ops {
                let addr = addr_of(key);
                if add {
                    let id = block(&mut arena, addr);
                    if model.insert(addr, id).is_some() {
                        map.remove(addr, &arena);
                    }
                    map.insert(addr, id);
                } else {
                    prop_assert_eq!(map.remove(addr, &arena), model.remove(&addr));
                }
                prop_assert_eq!(map.len(), model.len());
            }
            for key in 0..600 {
                let addr = addr_of(key);
                prop_assert_eq!(map.get(addr, &arena), model.get(&addr).copied());
            }
            prop_assert_eq!(map.iter().count(), model.len());
        }
    }

    #[test]
    fn grows_and_keeps_everything() {
        let mut arena = BlockArena::default();
        let mut map = AddrMap::default();
        let ids: Vec<BlockId> = (1..=100_000usize)
            .map(|n| block(&mut arena, n << 21))
            .collect();
        for (n, id) in ids.iter().enumerate() {
            map.insert((n + 1) << 21, *id);
        }
        for (n, id) in ids.iter().enumerate() {
            assert_eq!(map.get((n + 1) << 21, &arena), Some(*id));
        }
        assert_eq!(map.get(3, &arena), None);
        assert_eq!(map.get((1 << 21) + 8, &arena), None);
        assert_eq!(map.get(0, &arena), None);
    }
}
