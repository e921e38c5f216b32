use std::marker::PhantomData;
use std::mem;
use std::thread::panicking;

use super::{Guarded, Mutex, unwound};

/// A lock that was taken, and whether its value is being worked on: it is poisoned if this goes then, and else given back.
pub(super) struct Held<'a, T: Guarded> {
    pub lock: &'a Mutex<T>,
    /// Work on the value has begun, and not come to its end.
    pub at_work: bool,
    /// A lock belongs to the thread that took it.
    only_here: PhantomData<*const ()>,
}

impl<'a, T: Guarded> Held<'a, T> {
    /// The calling thread has just taken the lock, and nobody else stands for that.
    #[inline]
    pub fn taken(lock: &'a Mutex<T>) -> Self {
        Self {
            lock,
            at_work: false,
            only_here: PhantomData,
        }
    }

    /// Works on the value. Where nothing panics this is known as it is compiled, and costs nothing.
    #[inline(always)]
    pub fn work<U>(&mut self, work: impl FnOnce(&mut T) -> U) -> U {
        self.at_work = true;
        let done = work(self.get_mut());
        self.at_work = false;
        done
    }

    #[inline]
    pub fn get(&self) -> &T {
        // SAFETY: the thread has the lock (`taken`), so that nobody else has a reference; this one borrows `self`, which
        // stands for the lock alone.
        #[allow(unsafe_code)]
        unsafe {
            &*self.lock.value.get()
        }
    }

    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: as in `get`; this one borrows `self` mutably.
        #[allow(unsafe_code)]
        unsafe {
            &mut *self.lock.value.get()
        }
    }

    #[cold]
    #[inline(never)]
    fn poison(mut self) {
        if panicking() {
            unwound::note(self.lock.address());
        }
        self.get_mut().poisoned();
        self.lock.raw.poison();
        mem::forget(self);
    }
}

impl<T: Guarded> Drop for Held<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.at_work {
            // Not `self`, whose address would keep it in memory where nothing panics, too.
            Self::taken(self.lock).poison();
        } else {
            self.lock.raw.unlock();
        }
    }
}
