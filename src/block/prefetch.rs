//! Hints to the processor.

/// Asks for the cache line that holds an address, whatever is there.
#[inline]
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
pub(super) fn prefetch(addr: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint, which no address makes fail; SSE is part of every x86-64.
    unsafe { _mm_prefetch(std::ptr::without_provenance(addr), _MM_HINT_T0) };
}

#[inline]
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn prefetch(_: usize) {}
