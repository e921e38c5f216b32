//! Where the buckets of a large address map lie, for threads that don't hold the lock of its device: who will look an
//! address up asks for its bucket's cache line first. What is read may be out of date; it is only ever a hint to the
//! processor.

use std::sync::atomic::{AtomicUsize, Ordering};

/// log2 of the size of a bucket, bytes.
const BUCKET: u32 = 6;

/// The address of the first bucket, and in its lowest bits, which are 0 there, how far hashes are shifted; 0: the map is
/// small, and so in a cache anyway.
#[derive(Debug, Default)]
pub struct BucketHint(AtomicUsize);

impl BucketHint {
    /// Buckets are 64 bytes, aligned to that, and `shift` is below 64.
    pub(super) fn set(&self, first: usize, shift: u32) {
        debug_assert_eq!(first % (1 << BUCKET), 0);
        self.0.store(first | shift as usize, Ordering::Relaxed);
    }

    pub(super) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Where the bucket lies that a hash leads to.
    #[inline]
    pub(super) fn line_of(&self, hash: u64) -> Option<usize> {
        let hint = self.0.load(Ordering::Relaxed);
        if hint == 0 {
            return None;
        }
        let mask = (1 << BUCKET) - 1;
        let bucket = (hash >> (hint & mask)) as usize;
        Some((hint & !mask).wrapping_add(bucket << BUCKET))
    }

    /// Asks for that line.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        if let Some(line) = self.line_of(hash) {
            prefetch(line);
        }
    }
}

#[inline]
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn prefetch(line: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint, which no address makes fail; SSE is part of every x86-64.
    unsafe { _mm_prefetch(std::ptr::without_provenance(line), _MM_HINT_T0) };
}

#[inline]
#[cfg(not(target_arch = "x86_64"))]
fn prefetch(_: usize) {}
