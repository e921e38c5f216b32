//! What threads look at before they take a device's lock: all of it in one word, since each line they look at takes time.
//! Depends on `primitives`.

use crate::primitives::atomic::{AtomicUsize, Ordering};

/// log2 of the size of a bucket of the address map, bytes.
const BUCKET: u32 = 6;
/// How far hashes are shifted, below 64.
const SHIFT: usize = (1 << 6) - 1;
/// Several threads want the lock at once.
const CROWDED: usize = 1 << 6;
/// The rest is the address of the first bucket, a multiple of this; 0: the map is small, and so in a cache anyway.
const ALIGNMENT: usize = 1 << 7;

/// The signals of a device. What is read may be out of date. Thread-safe.
#[derive(Debug, Default)]
pub struct Signals(AtomicUsize);

/// What a thread saw of them.
#[derive(Debug, Clone, Copy)]
pub struct Seen(usize);

impl Signals {
    /// All of them.
    #[inline]
    pub fn see(&self) -> Seen {
        Seen(self.0.load(Ordering::Relaxed))
    }

    /// From now on threads use their leases, or don't.
    pub fn crowd(&self, crowded: bool) {
        if crowded {
            self.0.fetch_or(CROWDED, Ordering::Relaxed);
        } else {
            self.0.fetch_and(!CROWDED, Ordering::Relaxed);
        }
    }

    /// The address map is large: its buckets, of 64 bytes each, begin at `first`, and the upper bits of a hash, shifted
    /// by `shift`, lead to one.
    pub fn set_buckets(&self, first: usize, shift: u32) {
        debug_assert!(first.is_multiple_of(ALIGNMENT) && shift as usize <= SHIFT);
        self.clear_buckets();
        self.0.fetch_or(first | shift as usize, Ordering::Relaxed);
    }

    /// It is small.
    pub fn clear_buckets(&self) {
        self.0.fetch_and(CROWDED, Ordering::Relaxed);
    }
}

impl Seen {
    /// Whether there is anything to look at.
    #[inline]
    pub fn any(self) -> bool {
        self.0 != 0
    }

    /// Whether threads are to use their leases: who finds none is served otherwise.
    #[inline]
    pub fn is_crowded(self) -> bool {
        self.0 & CROWDED != 0
    }

    /// Where the bucket lies that a hash leads to, if there are many. Only ever for a hint to the processor.
    #[inline]
    pub fn bucket_of(self, hash: u64) -> Option<usize> {
        let first = self.0 & !(ALIGNMENT - 1);
        let bucket = (hash >> (self.0 & SHIFT)) as usize;
        (first != 0).then(|| first.wrapping_add(bucket << BUCKET))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn signals_do_not_touch_each_other() {
        let signals = Signals::default();
        let hash = 5 << 50;
        let seen = || {
            let seen = signals.see();
            (seen.any(), seen.is_crowded(), seen.bucket_of(hash))
        };
        assert_eq!(seen(), (false, false, None));
        signals.crowd(true);
        assert_eq!(seen(), (true, true, None));
        signals.set_buckets(0x7000_0000, 50);
        assert_eq!(seen(), (true, true, Some(0x7000_0000 + 5 * 64)));
        signals.crowd(false);
        assert_eq!(seen(), (true, false, Some(0x7000_0000 + 5 * 64)));
        signals.set_buckets(0x1000, 49);
        assert_eq!(seen(), (true, false, Some(0x1000 + 10 * 64)));
        signals.crowd(true);
        signals.clear_buckets();
        assert_eq!(seen(), (true, true, None));
        signals.crowd(false);
        assert_eq!(seen(), (false, false, None));
    }
}
