//! What threads share: from the standard library, and in models of the core (`cfg(loom)`, see `models`) from
//! loom, which runs them in every order. Depends on nothing.

#[cfg(not(loom))]
mod real {
    pub use parking_lot::Mutex as BlockingMutex;
    pub use std::hint::spin_loop;
    pub use std::sync::OnceLock;
    pub use std::sync::atomic;
    pub use std::thread::sleep;

    use atomic::{AtomicUsize, Ordering};
    use std::cell::Cell;

    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// The calling thread's number: threads are counted from 0, in the order in which they ask.
    #[inline]
    pub fn thread_number() -> usize {
        let number = NUMBER.get();
        if number != usize::MAX {
            return number;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(number);
        number
    }

    /// From now on the calling thread has that number: for tests.
    pub fn act_as(number: usize) {
        NUMBER.set(number);
    }
}
#[cfg(not(loom))]
pub use real::*;

#[cfg(loom)]
mod modelled;
#[cfg(loom)]
pub use modelled::*;
