//! Which lock a thread's panic went through: for whoever catches it.

use std::cell::Cell;

thread_local! {
    static LAST: Cell<usize> = const { Cell::new(0) };
}

/// What a thread unwinds with that asked for a poisoned lock. It has no message: who poisoned the lock has told.
#[derive(Debug)]
pub struct Refused;

/// The calling thread unwinds with, or for want of, the lock at an address.
pub(super) fn note(lock: usize) {
    LAST.set(lock);
}

/// The address of the last lock that the calling thread unwound with, or for want of, since this was asked last; 0 for
/// none.
pub fn take_unwound() -> usize {
    LAST.take()
}
