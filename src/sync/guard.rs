use std::ops::{Deref, DerefMut};
use std::thread::panicking;

use super::Guarded;
use super::held::Held;

/// Access to a value, all of it up to date, or all but what is late on purpose.
pub struct MutexGuard<'a, T: Guarded> {
    inner: Held<'a, T>,
    /// Something may be late on purpose.
    keeping: bool,
    /// The thread unwound before: where it does so at the end, too, nothing is known of the work in between.
    unwinding: bool,
}

impl<'a, T: Guarded> MutexGuard<'a, T> {
    #[inline]
    pub(super) fn new(mut inner: Held<'a, T>, keeping: bool) -> Self {
        inner.work(|value| {
            if keeping {
                value.entered_keeping();
            } else {
                value.entered();
            }
        });
        Self {
            inner,
            keeping,
            unwinding: panicking(),
        }
    }

    /// Gives the lock back while `call` runs. Unwinds where it was poisoned meanwhile; poisons it if `call` panics, as the
    /// guard's owner may be in the middle of a change.
    pub fn unlocked<U>(guard: &mut Self, call: impl FnOnce() -> U) -> U {
        guard.inner.work(T::leaving);
        guard.inner.lock.raw.unlock();
        let mut back = Back {
            guard,
            returned: false,
        };
        let result = call();
        back.returned = true;
        drop(back);
        if guard.inner.at_work {
            guard.inner.lock.refuse();
        }
        let keeping = guard.keeping;
        guard.inner.work(|value| {
            if keeping {
                value.entered_keeping();
            } else {
                value.entered();
            }
        });
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
        if panicking() && !self.unwinding {
            self.inner.at_work = true;
        }
        if !self.inner.at_work {
            self.inner.work(T::leaving);
        }
    }
}

impl<T: Guarded> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.inner.get()
    }
}

impl<T: Guarded> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

/// Takes a guard's lock back, however a call ends that was made without.
struct Back<'g, 'a, T: Guarded> {
    guard: &'g mut MutexGuard<'a, T>,
    returned: bool,
}

impl<T: Guarded> Drop for Back<'_, '_, T> {
    fn drop(&mut self) {
        let sound = self.guard.inner.lock.raw.lock_anyway();
        self.guard.inner.at_work = !(sound && self.returned);
    }
}
