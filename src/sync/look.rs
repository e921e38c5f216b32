use std::ops::Deref;
use std::thread::panicking;

use super::Guarded;
use super::held::Held;

/// Access to a value to read it: all of it up to date, unless the lock is poisoned.
pub struct Look<'a, T: Guarded> {
    inner: Held<'a, T>,
    /// The thread unwound before.
    unwinding: bool,
}

impl<'a, T: Guarded> Look<'a, T> {
    #[inline]
    pub(super) fn new(mut inner: Held<'a, T>) -> Self {
        inner.work(|value| {
            value.entered();
            value.seen();
        });
        Self {
            inner,
            unwinding: panicking(),
        }
    }

    /// It stays poisoned.
    pub(super) fn at_poisoned(mut inner: Held<'a, T>) -> Self {
        inner.at_work = true;
        Self {
            inner,
            unwinding: panicking(),
        }
    }
}

impl<T: Guarded> Drop for Look<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.inner.at_work |= panicking() && !self.unwinding;
    }
}

impl<T: Guarded> Deref for Look<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.inner.get()
    }
}
