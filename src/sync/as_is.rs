use std::marker::PhantomData;
use std::mem;

use super::held::Held;
use super::{Guarded, Mutex};

/// A lock that was taken, and the value as it is: see [`Mutex::lock_as_is`]. Gives the lock back when it goes. The value is
/// worked on by [`Self::with`] rather than by dereferencing, so that whether the work panicked is known without asking.
pub struct AsIs<'a, T: Guarded> {
    lock: &'a Mutex<T>,
    only_here: PhantomData<*const ()>,
}

impl<'a, T: Guarded> AsIs<'a, T> {
    /// The calling thread has just taken the lock, and nobody else stands for that.
    #[inline]
    pub(super) fn taken(lock: &'a Mutex<T>) -> Self {
        Self {
            lock,
            only_here: PhantomData,
        }
    }

    /// Works on the value, then gives the lock back. Poisons it if the work panics.
    #[inline(always)]
    pub fn with<U>(self, work: impl FnOnce(&mut T) -> U) -> U {
        self.held().work(work)
    }

    /// As [`Self::with`], and keeps the lock.
    #[inline]
    pub fn hold<U>(self, work: impl FnOnce(&mut T) -> U) -> (Self, U) {
        let mut held = self.held();
        let done = held.work(work);
        let taken = Self::taken(held.lock);
        mem::forget(held);
        (taken, done)
    }

    #[inline(always)]
    pub(super) fn held(self) -> Held<'a, T> {
        let held = Held::taken(self.lock);
        mem::forget(self);
        held
    }
}

impl<T: Guarded> Drop for AsIs<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock();
    }
}
