//! The lock of a device: held for tens of nanoseconds, never across a call that blocks.
//!
//! Taking it is one compare-and-swap, giving it back one store. There is no queue: who finds it taken
//! backs off, longer each time, so that the holder keeps its cache lines for many operations; after that
//! it sleeps for moments. A holder that the system suspends is waited for asleep. The more often a lock is still taken
//! after the first pause, the longer that pause is: threads that do nothing but take the lock by turns spend more time
//! on moving what it protects from one cache to another than on their work. Those of a device get leases then
//! ([`lease`](crate::lease)), and take it for moments ([`Mutex::lock_as_is_soon`]).

use std::time::Duration;

use crate::primitives::atomic::{AtomicBool, AtomicU8, Ordering};
use crate::primitives::{sleep, spin_loop};

/// Pauses before the second look; doubled each time.
const FIRST_PAUSES: u32 = if cfg!(loom) { 1 } else { 16 };
/// How often that is doubled at the most.
const MOST_CONTENDED: u8 = if cfg!(loom) { 0 } else { 6 };
/// The longest run of pauses, some ten microseconds.
const MOST_PAUSES: u32 = if cfg!(loom) { 1 } else { 512 };
/// Runs of the longest kind before the thread sleeps.
const PATIENCE: u32 = 8;
const NAP: Duration = Duration::from_micros(50);

/// Tries to take a lock that is held for moments, and pauses between them.
const SOON: u32 = if cfg!(loom) { 1 } else { 64 };
const SOON_PAUSES: u32 = if cfg!(loom) { 1 } else { 4 };

/// See the module's text.
pub struct RawLock {
    taken: AtomicBool,
    /// How much longer than usual the first pause is: one more each time the lock is still taken after it, one less
    /// each time it is not. Only who waits looks at it, so that a count lost between two threads does no harm.
    contended: AtomicU8,
}

// SAFETY: `lock` and `try_lock` return (with success) only after they changed `taken` from false to true,
// and only `unlock`, which the holder calls, changes it back. Acquire and release order what holders do.
#[allow(unsafe_code)]
unsafe impl lock_api::RawMutex for RawLock {
    #[allow(clippy::declare_interior_mutable_const)]
    #[cfg(not(loom))]
    const INIT: Self = Self {
        taken: AtomicBool::new(false),
        contended: AtomicU8::new(0),
    };
    // Loom's are made at run time: see `RawLock::new`.
    #[cfg(loom)]
    const INIT: Self = unreachable!();
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
    /// An unlocked one.
    fn new() -> Self {
        Self {
            taken: AtomicBool::new(false),
            contended: AtomicU8::new(0),
        }
    }

    #[cold]
    fn wait(&self) {
        let contended = self.contended.load(Ordering::Relaxed);
        if self.try_after(FIRST_PAUSES << contended) {
            let less = contended.saturating_sub(1);
            self.contended.store(less, Ordering::Relaxed);
            return;
        }
        let more = contended + u8::from(contended != MOST_CONTENDED);
        self.contended.store(more, Ordering::Relaxed);
        let (mut pauses, mut tries) = (FIRST_PAUSES << more, 0);
        while !self.try_after(pauses) {
            if pauses < MOST_PAUSES {
                pauses *= 2;
            } else if tries < PATIENCE {
                tries += 1;
            } else {
                sleep(NAP);
            }
        }
    }

    /// Tries to take the lock after so many pauses, in which the holder's cache lines are left alone.
    fn try_after(&self, pauses: u32) -> bool {
        use lock_api::RawMutex;

        for _ in 0..pauses {
            spin_loop();
        }
        !self.taken.load(Ordering::Relaxed) && self.try_lock()
    }
}

/// What a [`Mutex`] protects. Most of its state may be late while nobody looks at it.
pub trait Guarded {
    /// The lock was taken by someone who may look at everything: brings what is late up to date.
    fn entered(&mut self) {}
    /// It was taken by someone who may look at everything but what is late on purpose.
    fn entered_keeping(&mut self) {}
    /// Someone looks, for another reason than to serve a request.
    fn seen(&mut self) {}
    /// The lock is about to be given back by someone who may have changed anything.
    fn leaving(&mut self) {}
}

/// Access to a value as it is: see [`Mutex::lock_as_is`].
pub type AsIs<'a, T> = lock_api::MutexGuard<'a, RawLock, T>;

/// A value behind a [`RawLock`].
pub struct Mutex<T>(lock_api::Mutex<RawLock, T>);

impl<T: Guarded> Mutex<T> {
    /// An unlocked one.
    pub fn new(value: T) -> Self {
        Self(lock_api::Mutex::from_raw(RawLock::new(), value))
    }

    /// Takes the lock and brings the value up to date.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let mut guard = self.lock_unseen();
        guard.inner.seen();
        guard
    }

    /// As [`Self::lock`], for who only reads: [`Guarded::leaving`] is not called, as nothing it looks at changes.
    #[inline]
    pub fn look(&self) -> Look<'_, T> {
        let mut inner = self.0.lock();
        inner.entered();
        inner.seen();
        Look(inner)
    }

    /// As [`Self::lock`], for who shows nobody what is there: [`Guarded::seen`] is not called.
    #[inline]
    pub fn lock_unseen(&self) -> MutexGuard<'_, T> {
        let mut inner = self.0.lock();
        inner.entered();
        MutexGuard {
            inner,
            keeping: false,
        }
    }

    /// As [`Self::lock_unseen`], for operations that know what may be late on purpose, until
    /// [`MutexGuard::catch_up`].
    #[inline]
    pub fn lock_keeping(&self) -> MutexGuard<'_, T> {
        let mut inner = self.0.lock();
        inner.entered_keeping();
        MutexGuard {
            inner,
            keeping: true,
        }
    }

    /// Takes the lock and nothing else: for operations that know what may be late. None of the calls of
    /// [`Guarded`] is made.
    #[inline]
    pub fn lock_as_is(&self) -> AsIs<'_, T> {
        self.0.lock()
    }

    /// As [`Self::lock_as_is`], where the lock is held for moments and seldom.
    #[inline]
    pub fn lock_as_is_soon(&self) -> AsIs<'_, T> {
        for _ in 0..SOON {
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
            for _ in 0..SOON_PAUSES {
                spin_loop();
            }
        }
        self.0.lock()
    }

    /// As [`Self::lock_as_is`], if nobody has it.
    #[inline]
    pub fn try_lock_as_is(&self) -> Option<AsIs<'_, T>> {
        self.0.try_lock()
    }
}

/// Access to such a value, all of it up to date, to read it.
pub struct Look<'a, T: Guarded>(lock_api::MutexGuard<'a, RawLock, T>);

impl<T: Guarded> std::ops::Deref for Look<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Access to such a value, all of it up to date, or all but what is late on purpose.
pub struct MutexGuard<'a, T: Guarded> {
    inner: lock_api::MutexGuard<'a, RawLock, T>,
    /// Something may be late on purpose.
    keeping: bool,
}

impl<T: Guarded> MutexGuard<'_, T> {
    /// Gives the lock back while `call` runs.
    pub fn unlocked<U>(guard: &mut Self, call: impl FnOnce() -> U) -> U {
        guard.leaving();
        let result = lock_api::MutexGuard::unlocked(&mut guard.inner, call);
        if guard.keeping {
            guard.entered_keeping();
        } else {
            guard.entered();
        }
        result
    }

    /// Brings everything up to date, from now on.
    #[inline]
    pub fn catch_up(guard: &mut Self) {
        if std::mem::take(&mut guard.keeping) {
            guard.entered();
        }
    }
}

impl<T: Guarded> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.inner.leaving();
    }
}

impl<T: Guarded> std::ops::Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: Guarded> std::ops::DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::{Guarded, Mutex, MutexGuard};

    impl Guarded for u64 {}
    impl Guarded for () {}

    /// How often it was entered, left, and entered with something kept.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Counted(u32, u32, u32);

    impl Guarded for Counted {
        fn entered(&mut self) {
            self.0 += 1;
        }

        fn entered_keeping(&mut self) {
            self.2 += 1;
        }

        fn leaving(&mut self) {
            self.1 += 1;
        }
    }

    #[test]
    fn every_way_in_and_out_is_told() {
        let lock = Mutex::new(Counted(0, 0, 0));
        let mut guard = lock.lock();
        assert_eq!(*guard, Counted(1, 0, 0));
        MutexGuard::unlocked(&mut guard, || {
            assert_eq!(*lock.lock_as_is(), Counted(1, 1, 0));
        });
        assert_eq!(*guard, Counted(2, 1, 0));
        MutexGuard::catch_up(&mut guard);
        assert_eq!(*guard, Counted(2, 1, 0));
        drop(guard);
        assert_eq!(*lock.lock_as_is(), Counted(2, 2, 0));
        assert_eq!(*lock.look(), Counted(3, 2, 0));
        assert_eq!(*lock.lock_as_is(), Counted(3, 2, 0));
    }

    #[test]
    fn what_is_kept_is_kept_until_it_is_called_for() {
        let lock = Mutex::new(Counted(0, 0, 0));
        let mut guard = lock.lock_keeping();
        MutexGuard::unlocked(&mut guard, || ());
        assert_eq!(*guard, Counted(0, 1, 2));
        MutexGuard::catch_up(&mut guard);
        assert_eq!(*guard, Counted(1, 1, 2));
        MutexGuard::unlocked(&mut guard, || ());
        assert_eq!(*guard, Counted(2, 2, 2));
    }

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
