//! Threads on one device, in both engines, and in the one that the driver decides on.

use npualloc_verify::stress::{KINDS, stress};

const THREADS: u64 = 4;
const STEPS: usize = 6_000;

#[test]
fn threads_keep_every_invariant_with_fixed_segments() {
    assert!(stress(KINDS[0], THREADS, STEPS) > 0);
}

#[test]
fn threads_keep_every_invariant_with_virtual_segments() {
    assert!(stress(KINDS[1], THREADS, STEPS) > 0);
}

#[test]
fn threads_keep_every_invariant_where_pages_have_one_address() {
    assert!(stress(KINDS[2], THREADS, STEPS) > 0);
}

#[test]
fn threads_keep_every_invariant_where_the_driver_decides() {
    assert!(stress(KINDS[3], THREADS, STEPS) > 0);
}
