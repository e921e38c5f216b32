//! How ids and handles are hashed: they are the allocator's or the driver's, so nobody chooses them to collide.

use std::hash::{BuildHasherDefault, Hasher};

/// One multiplication for each number.
#[derive(Debug, Default, Clone)]
pub struct Mix(u64);

/// Builds [`Mix`].
pub type BuildMix = BuildHasherDefault<Mix>;

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
