//! Two numbers side by side, in one register where the processor has such. Statistics are written out in pairs: half as
//! many stores, which are what counts there, for the next lock waits for all of them.

/// A first and a second number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair(Inner);

#[cfg(target_arch = "x86_64")]
type Inner = std::arch::x86_64::__m128i;

#[cfg(not(target_arch = "x86_64"))]
type Inner = [i64; 2];

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod numbers {
    use super::Pair;
    use std::arch::x86_64::{
        _mm_add_epi64, _mm_set_epi64x, _mm_shuffle_epi32, _mm_sub_epi64, _mm_unpackhi_epi64,
        _mm_unpacklo_epi64,
    };

    impl Pair {
        #[inline]
        pub fn new(first: i64, second: i64) -> Self {
            // SAFETY: SSE2 is part of every x86-64; so in all that follow.
            Self(unsafe { _mm_set_epi64x(second, first) })
        }

        #[inline]
        pub fn plus(self, other: Self) -> Self {
            // SAFETY: as in `new`.
            Self(unsafe { _mm_add_epi64(self.0, other.0) })
        }

        #[inline]
        pub fn minus(self, other: Self) -> Self {
            // SAFETY: as in `new`.
            Self(unsafe { _mm_sub_epi64(self.0, other.0) })
        }

        /// The first numbers of both.
        #[inline]
        pub fn firsts(self, other: Self) -> Self {
            // SAFETY: as in `new`.
            Self(unsafe { _mm_unpacklo_epi64(self.0, other.0) })
        }

        /// The second numbers of both.
        #[inline]
        pub fn seconds(self, other: Self) -> Self {
            // SAFETY: as in `new`.
            Self(unsafe { _mm_unpackhi_epi64(self.0, other.0) })
        }

        /// The sum of its numbers, twice.
        #[inline]
        pub fn sums(self) -> Self {
            // SAFETY: as in `new`.
            Self(unsafe { _mm_add_epi64(self.0, _mm_shuffle_epi32::<0b01_00_11_10>(self.0)) })
        }

        #[inline]
        pub fn get(self) -> [i64; 2] {
            // SAFETY: both are 16 bytes without padding, and any bits are numbers; the first is the lower half.
            unsafe { std::mem::transmute(self.0) }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Pair {
    pub fn new(first: i64, second: i64) -> Self {
        Self([first, second])
    }

    pub fn plus(self, other: Self) -> Self {
        Self([self.0[0] + other.0[0], self.0[1] + other.0[1]])
    }

    pub fn minus(self, other: Self) -> Self {
        Self([self.0[0] - other.0[0], self.0[1] - other.0[1]])
    }

    /// The first numbers of both.
    pub fn firsts(self, other: Self) -> Self {
        Self([self.0[0], other.0[0]])
    }

    /// The second numbers of both.
    pub fn seconds(self, other: Self) -> Self {
        Self([self.0[1], other.0[1]])
    }

    /// The sum of its numbers, twice.
    pub fn sums(self) -> Self {
        Self::new(self.0[0] + self.0[1], self.0[0] + self.0[1])
    }

    pub fn get(self) -> [i64; 2] {
        self.0
    }
}
