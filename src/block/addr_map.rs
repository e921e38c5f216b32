//! Address → live block in one probe: buckets of a cache line with room for seven blocks. What finds its
//! bucket full goes to the next one that has room, and the buckets it passed count it, so that a lookup
//! knows where to stop and a deletion moves nothing.
//!
//! An entry is 8 bytes: the block's name, and 31 bits of its address to tell it from its neighbours in the
//! bucket. The block itself, which whoever looks it up needs anyway, has the last word.

use std::sync::Arc;

use super::arena::BlockArena;
use super::lazy_array::{LazyArray, Zeroable};
use super::marks::Marks;
use super::prefetch::prefetch;
use crate::ids::BlockId;
use crate::signals::{Seen, Signals};
use crate::size::MIN_BLOCK_SIZE;

/// Fibonacci hashing: 2^64 / golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
const MIN_BUCKETS: usize = 128;
/// Buckets from which on they are unlikely to be in a processor's cache: 128 KiB of them.
const MANY_BUCKETS: usize = 2048;
/// Entries of a bucket.
const ROOM: usize = 7;
const EVERY: u32 = (1 << ROOM) - 1;

/// Tags (see [`tag_of`]; 0 in an empty place), the number of entries that belong here or before here and lie
/// behind, and the blocks.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Bucket([u32; 16]);

/// Where the number of entries that passed by stands.
const PASSED: usize = ROOM;
/// Where the blocks begin.
const BLOCKS: usize = 8;

// SAFETY: numbers.
#[allow(unsafe_code)]
unsafe impl Zeroable for Bucket {}

impl Bucket {
    /// A bit for each place with this tag.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    fn places(&self, tag: u32) -> u32 {
        let same = |at: usize| u32::from(self.0[at] == tag) << at;
        (0..ROOM).fold(0, |places, at| places | same(at))
    }

    /// A bit for each place with this tag: all of them compared at once.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[allow(unsafe_code)]
    fn places(&self, tag: u32) -> u32 {
        use std::arch::x86_64::{
            __m128i, _mm_cmpeq_epi32, _mm_load_si128, _mm_movemask_epi8, _mm_packs_epi16,
            _mm_packs_epi32, _mm_set1_epi32, _mm_setzero_si128,
        };
        let words: *const __m128i = self.0.as_ptr().cast();
        // SAFETY: SSE2 is part of every x86-64; a bucket is aligned to 64 bytes and four such vectors long.
        let bytes = unsafe {
            let tag = _mm_set1_epi32(tag as i32);
            let low = _mm_cmpeq_epi32(_mm_load_si128(words), tag);
            let high = _mm_cmpeq_epi32(_mm_load_si128(words.add(1)), tag);
            _mm_movemask_epi8(_mm_packs_epi16(
                _mm_packs_epi32(low, high),
                _mm_setzero_si128(),
            ))
        };
        bytes as u32 & EVERY
    }

    #[inline]
    fn block(&self, place: u32) -> BlockId {
        BlockId(self.0[BLOCKS + place as usize % 8])
    }

    fn entries(&self) -> impl Iterator<Item = (u32, BlockId)> {
        let places = 0..ROOM as u32;
        let all = places.map(|place| (self.0[place as usize], self.block(place)));
        all.filter(|(tag, _)| *tag != 0)
    }
}

/// Where an entry lies, until the map grows or shrinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(u32);

impl Place {
    /// Stands for none.
    pub const NONE: Self = Self(u32::MAX);

    #[inline]
    fn new(bucket: usize, place: u32) -> Self {
        Self((bucket as u32) << 3 | place)
    }
}

/// The address in units of 512 bytes, modulo 2^31, and a bit that tells it from none: the same for two
/// blocks only when they are a multiple of 1 TiB apart.
#[inline]
fn tag_of(addr: usize) -> u32 {
    (addr / MIN_BLOCK_SIZE) as u32 | 1 << 31
}

#[inline]
fn hash_of(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(MULTIPLIER)
}

/// A hash of an address, by its upper bits.
#[inline]
pub(super) fn hash_of_addr(addr: usize) -> u64 {
    hash_of(tag_of(addr))
}

/// Asks for what a lookup of `addr` will look at first, if the map is so large that it may have to come from afar.
#[inline]
pub fn prefetch_bucket(signals: Seen, addr: usize) {
    if let Some(bucket) = signals.bucket_of(hash_of_addr(addr)) {
        prefetch(bucket);
    }
}

/// The live blocks of a device by start address.
#[derive(Debug)]
pub struct AddrMap {
    buckets: LazyArray<Bucket>,
    shift: u32,
    len: usize,
    /// Told where the buckets are, if they are many.
    signals: Arc<Signals>,
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
            buckets: LazyArray::new(buckets),
            shift: 64 - buckets.ilog2(),
            len: 0,
            signals: Arc::default(),
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
        self.buckets.len() * size_of::<Bucket>()
    }

    fn signal_buckets(&self) {
        if self.buckets.len() < MANY_BUCKETS {
            self.signals.clear_buckets();
        } else {
            let first: *const Bucket = self.buckets.at(0);
            self.signals.set_buckets(first.addr(), self.shift);
        }
    }

    /// For who does not hold the lock that the map is behind.
    pub fn signals(&self) -> Arc<Signals> {
        self.signals.clone()
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        (hash_of(tag) >> self.shift) as usize
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
        let home = self.home(tag);
        if !self.place_in(home, tag, block) {
            self.place_behind(home, tag, block);
        }
    }

    /// False when the bucket is full.
    #[inline]
    fn place_in(&mut self, bucket: usize, tag: u32, block: BlockId) -> bool {
        let bucket = self.buckets.at_mut(bucket);
        let vacant = bucket.places(0);
        if vacant == 0 {
            return false;
        }
        let place = vacant.trailing_zeros() as usize % 8;
        bucket.0[place] = tag;
        bucket.0[BLOCKS + place] = block.0;
        true
    }

    #[cold]
    fn place_behind(&mut self, home: usize, tag: u32, block: BlockId) {
        let mut at = home;
        loop {
            self.buckets.at_mut(at).0[PASSED] += 1;
            at += 1;
            if self.place_in(at, tag, block) {
                return;
            }
        }
    }

    #[cold]
    fn grow(&mut self) {
        self.spread_over(self.buckets.len() * 2);
    }

    /// Gives back most of what there is room for, if little of it is used: what is used then lies closer together.
    pub fn shrink(&mut self) {
        let mut buckets = MIN_BUCKETS;
        while buckets * 9 / 2 < self.len * 2 {
            buckets *= 2;
        }
        if buckets * 4 <= self.buckets.len() {
            self.spread_over(buckets);
        }
    }

    fn spread_over(&mut self, buckets: usize) {
        let mut other = Self::with_buckets(buckets);
        other.len = self.len;
        for bucket in self.buckets.head(self.buckets.len()) {
            for (tag, block) in bucket.entries() {
                other.place(tag, block);
            }
        }
        std::mem::swap(&mut self.signals, &mut other.signals);
        *self = other;
        self.signal_buckets();
    }

    /// The block that starts at `addr`, if there is one and it has a mark; where its entry lies; and whether it is of the
    /// small pool. Looks at no block.
    #[inline]
    pub fn find_marked(&self, addr: usize, marks: &Marks) -> Option<(Place, BlockId, bool)> {
        let tag = tag_of(addr);
        let home = self.home(tag);
        let bucket = self.buckets.at(home);
        let place = bucket.places(tag).trailing_zeros();
        if place >= BLOCKS as u32 {
            return None;
        }
        let block = bucket.block(place);
        let small = marks.tell(block, addr)?;
        Some((Place::new(home, place), block, small))
    }

    /// The live block that starts at `addr`, and where its entry lies.
    #[inline]
    pub fn find(&self, addr: usize, arena: &BlockArena) -> Option<(Place, BlockId)> {
        let tag = tag_of(addr);
        let home = self.home(tag);
        let bucket = self.buckets.at(home);
        let place = bucket.places(tag).trailing_zeros();
        let block = bucket.block(place);
        // Where there was no such tag, what was looked at is some block, or none.
        if place < BLOCKS as u32 && arena[block].addr == addr {
            return Some((Place::new(home, place), block));
        }
        self.find_anywhere(addr, arena)
    }

    #[cold]
    #[inline(never)]
    fn find_anywhere(&self, addr: usize, arena: &BlockArena) -> Option<(Place, BlockId)> {
        let tag = tag_of(addr);
        let home = self.home(tag);
        for at in home..home + self.buckets.len() {
            let bucket = self.buckets.at(at);
            let mut places = bucket.places(tag);
            while places != 0 {
                let place = places.trailing_zeros();
                let block = bucket.block(place);
                if arena[block].addr == addr {
                    let at = at % self.buckets.len();
                    return Some((Place::new(at, place), block));
                }
                places &= places - 1;
            }
            if bucket.0[PASSED] == 0 {
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
        let found = (place.0 >> 3) as usize;
        let bucket = self.buckets.at_mut(found);
        let tag = std::mem::take(&mut bucket.0[place.0 as usize % 8]);
        debug_assert_ne!(tag, 0);
        self.len -= 1;
        let home = self.home(tag);
        if home != found {
            self.uncount(home, found);
        }
    }

    #[cold]
    fn uncount(&mut self, home: usize, found: usize) {
        let mut at = home;
        while at != found {
            self.buckets.at_mut(at).0[PASSED] -= 1;
            at = (at + 1) % self.buckets.len();
        }
    }

    /// Every block.
    pub fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        let buckets = self.buckets.head(self.buckets.len());
        buckets
            .iter()
            .flat_map(|bucket| bucket.entries().map(|(_, block)| block))
    }
}

#[cfg(test)]
mod tests;
