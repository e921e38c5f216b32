//! A set of sizes in [`QuickLists`](super::quick::QuickLists): whose blocks are kept, and how often they are asked for.

use super::arena::BlockArena;
use crate::ids::BlockId;

/// Sizes of a set.
pub(super) const WAYS: usize = 4;
/// Requests in vain that a size answers for, after which its blocks are given up.
const PATIENCE: u8 = 8;

/// Sizes whose keys share a set. A cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Set {
    /// Of which list and size, see [`QuickLists`](super::quick::QuickLists). 0: none.
    pub keys: [u32; WAYS],
    /// The block kept last.
    pub last: [BlockId; WAYS],
    pub count: [u8; WAYS],
    /// Requests of the size, less those in vain that it answered for while there were no blocks.
    pub asked: [u8; WAYS],
    /// Requests in vain that it answered for since one of its own.
    pub strangers: [u8; WAYS],
    /// Who answers for the next request in vain, modulo [`WAYS`].
    turn: u8,
    /// A bit for each size that was asked for since somebody looked.
    pub used: u8,
}

impl Set {
    pub const EMPTY: Self = Self {
        keys: [0; WAYS],
        last: [BlockId::NONE; WAYS],
        count: [0; WAYS],
        asked: [0; WAYS],
        strangers: [0; WAYS],
        turn: 0,
        used: 0,
    };

    /// Which of the sizes has this key.
    #[inline(always)]
    pub fn way_of(&self, key: u32) -> Option<usize> {
        let same = self.ways(key);
        (same != 0).then(|| same.trailing_zeros() as usize % WAYS)
    }

    /// A bit for each size with this key.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    fn ways(&self, key: u32) -> u32 {
        let same = |way: usize| u32::from(self.keys[way] == key) << way;
        (0..WAYS).fold(0, |ways, way| ways | same(way))
    }

    /// A bit for each size with this key: all of them compared at once.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    #[allow(unsafe_code)]
    fn ways(&self, key: u32) -> u32 {
        use std::arch::x86_64::{
            __m128i, _mm_castsi128_ps, _mm_cmpeq_epi32, _mm_load_si128, _mm_movemask_ps,
            _mm_set1_epi32,
        };
        let keys: *const __m128i = self.keys.as_ptr().cast();
        // SAFETY: SSE2 is part of every x86-64; the keys are one such vector, first in a set, which is aligned to 64 bytes.
        let ways = unsafe {
            let same = _mm_cmpeq_epi32(_mm_load_si128(keys), _mm_set1_epi32(key as i32));
            _mm_movemask_ps(_mm_castsi128_ps(same))
        };
        ways as u32
    }

    /// Notes a request for a size that has no place here: it gets one that nobody asks for. If there is none, the
    /// others answer for it by turns, and the one whose blocks are to be given up is returned.
    #[inline]
    pub fn in_vain(&mut self, key: u32) -> Option<usize> {
        let unused = |way: &usize| self.count[*way] | self.asked[*way] == 0;
        if let Some(way) = (0..WAYS).find(unused) {
            (self.keys[way], self.strangers[way]) = (key, 0);
            return None;
        }
        let way = self.turn as usize % WAYS;
        self.turn = self.turn.wrapping_add(1);
        if self.count[way] == 0 {
            self.asked[way] -= 1;
            return None;
        }
        self.strangers[way] += 1;
        (self.strangers[way] >= PATIENCE).then_some(way)
    }

    /// Takes the block kept last out of a size that has one.
    #[inline]
    pub fn pop(&mut self, way: usize, arena: &BlockArena) -> BlockId {
        let id = self.last[way];
        self.last[way] = arena[id].free_next;
        self.count[way] -= 1;
        id
    }
}
