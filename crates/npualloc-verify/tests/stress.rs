//! Threads on one device, in both engines.

use npualloc_verify::stress::stress;

const THREADS: u64 = 4;
const STEPS: usize = 6_000;

#[test]
fn threads_keep_every_invariant_with_fixed_segments() {
    assert!(stress("", THREADS, STEPS) > 0);
}

#[test]
fn threads_keep_every_invariant_with_virtual_segments() {
    assert!(stress("expandable_segments:True", THREADS, STEPS) > 0);
}
