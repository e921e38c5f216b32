//! The lock of a device: held for tens of nanoseconds, never across a call that blocks.
//!
//! Taking it is one compare-and-swap, giving it back one store. There is no queue: who finds it taken
//! backs off, longer each time, so that the holder keeps its cache lines for many operations; after that
//! it sleeps for moments. A holder that the system suspends is waited for asleep.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pauses before the second look; doubled each time.
const FIRST_PAUSES: u32 = 16;
/// The longest run of pauses, some ten microseconds.
const MOST_PAUSES: u32 = 512;
/// Runs of the longest kind before the thread sleeps.
const PATIENCE: u32 = 8;
const NAP: Duration = Duration::from_micros(50);

/// See the module's text.
pub struct RawLock {
    taken: AtomicBool,
}

// SAFETY: `lock` and `try_lock` return (with success) only after they changed `taken` from false to true,
// and only `unlock`, which the holder calls, changes it back. Acquire and release order what holders do.
#[allow(unsafe_code)]
unsafe impl lock_api::RawMutex for RawLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self {
        taken: AtomicBool::new(false),
    };
    // A guard may not wander to another thread, as with the locks of the standard library.
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.taken
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.taken.store(false, Ordering::Release);
    }
}

impl RawLock {
    #[cold]
    fn wait(&self) {
        use lock_api::RawMutex;

        let (mut pauses, mut tries) = (FIRST_PAUSES, 0);
        loop {
            for _ in 0..pauses {
                std::hint::spin_loop();
            }
            if !self.taken.load(Ordering::Relaxed) && self.try_lock() {
                return;
            }
            if pauses < MOST_PAUSES {
                pauses *= 2;
            } else if tries < PATIENCE {
                tries += 1;
            } else {
                std::thread::sleep(NAP);
            }
        }
    }
}

/// A value behind a [`RawLock`].
pub type Mutex<T> = lock_api::Mutex<RawLock, T>;
/// Access to such a value. [`lock_api::MutexGuard::unlocked`] gives the lock back for a while.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawLock, T>;

#[cfg(test)]
mod tests {
    use super::Mutex;

    #[test]
    fn no_increment_is_lost() {
        let counter = Mutex::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let mut value = counter.lock();
                        let seen = *value;
                        std::hint::black_box(&mut *value);
                        *value = seen + 1;
                    }
                });
            }
        });
        assert_eq!(*counter.lock(), 80_000);
    }

    #[test]
    fn a_waiter_gets_in_after_a_long_hold() {
        let lock = Mutex::new(());
        std::thread::scope(|scope| {
            let held = lock.lock();
            let waiter = scope.spawn(|| drop(lock.lock()));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!waiter.is_finished());
            drop(held);
            waiter.join().expect("gets in");
        });
    }
}
