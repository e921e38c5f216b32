use std::cell::UnsafeCell;
use std::panic::resume_unwind;
use std::ptr;

use super::held::Held;
use super::raw_lock::RawLock;
use super::{AsIs, Guarded, Look, MutexGuard, Refused, unwound};
use crate::primitives::spin_loop;

/// Tries to take a lock that is held for moments, and pauses between them.
const SOON: u32 = if cfg!(loom) { 1 } else { 64 };
const SOON_PAUSES: u32 = if cfg!(loom) { 1 } else { 4 };

/// A value behind a lock: see the module's text.
pub struct Mutex<T> {
    pub(super) raw: RawLock,
    pub(super) value: UnsafeCell<T>,
}

// SAFETY: the value is only ever reached through `Held`, which stands for the lock; that one thread at a time has, and
// taking and giving back order what holders do. So threads take turns with a value that may go from one to another.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T: Guarded> Mutex<T> {
    /// An unlocked one.
    pub fn new(value: T) -> Self {
        Self {
            raw: RawLock::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock and brings the value up to date. Unwinds where it is poisoned, as all but a few of these do.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let mut guard = self.lock_unseen();
        guard.seen();
        guard
    }

    /// As [`Self::lock`], unless the lock is poisoned.
    pub fn lock_if_sound(&self) -> Option<MutexGuard<'_, T>> {
        let mut guard = MutexGuard::new(self.lock_as_is()?.held(), false);
        guard.seen();
        Some(guard)
    }

    /// As [`Self::lock`], for who only reads: [`Guarded::leaving`] is not called, as nothing it looks at changes. A poisoned
    /// value is looked at as it was left.
    #[inline]
    pub fn look(&self) -> Look<'_, T> {
        match self.lock_as_is() {
            Some(taken) => Look::new(taken.held()),
            None => self.look_at_poisoned(),
        }
    }

    #[cold]
    fn look_at_poisoned(&self) -> Look<'_, T> {
        self.raw.lock_anyway();
        Look::at_poisoned(Held::taken(self))
    }

    /// As [`Self::lock`], for who shows nobody what is there: [`Guarded::seen`] is not called.
    #[inline]
    pub fn lock_unseen(&self) -> MutexGuard<'_, T> {
        MutexGuard::new(self.lock_or_unwind().held(), false)
    }

    /// As [`Self::lock_unseen`], for operations that know what may be late on purpose, until
    /// [`MutexGuard::catch_up`].
    #[inline]
    pub fn lock_keeping(&self) -> MutexGuard<'_, T> {
        MutexGuard::new(self.lock_or_unwind().held(), true)
    }

    /// As [`Self::lock_keeping`], unless the lock is poisoned.
    #[inline]
    pub fn lock_keeping_if_sound(&self) -> Option<MutexGuard<'_, T>> {
        Some(MutexGuard::new(self.lock_as_is()?.held(), true))
    }

    /// Takes the lock and nothing else, unless it is poisoned: for operations that know what may be late. None of the calls
    /// of [`Guarded`] is made.
    #[inline]
    pub fn lock_as_is(&self) -> Option<AsIs<'_, T>> {
        self.raw.lock().then(|| AsIs::taken(self))
    }

    /// As [`Self::lock_as_is`], where the lock is held for moments and seldom.
    #[inline]
    pub fn lock_as_is_soon(&self) -> Option<AsIs<'_, T>> {
        for _ in 0..SOON {
            if self.raw.try_lock() {
                return Some(AsIs::taken(self));
            }
            for _ in 0..SOON_PAUSES {
                spin_loop();
            }
        }
        self.lock_as_is()
    }

    /// As [`Self::lock_as_is`], if nobody has it.
    #[inline]
    pub fn try_lock_as_is(&self) -> Option<AsIs<'_, T>> {
        self.raw.try_lock().then(|| AsIs::taken(self))
    }

    /// As [`Self::lock_as_is`]; unwinds where the lock is poisoned.
    #[inline]
    pub fn lock_or_unwind(&self) -> AsIs<'_, T> {
        match self.lock_as_is() {
            Some(taken) => taken,
            None => self.refuse(),
        }
    }

    /// Whether its holder panicked.
    pub fn is_poisoned(&self) -> bool {
        self.raw.is_poisoned()
    }

    /// Poisons it, as if a holder had panicked.
    #[cold]
    pub fn poison(&self) {
        if let Some(taken) = self.lock_as_is() {
            taken.held().at_work = true;
        }
    }

    /// What [`take_unwound`](super::take_unwound) calls it.
    pub fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Without the message that the first panic had.
    #[cold]
    pub(super) fn refuse(&self) -> ! {
        unwound::note(self.address());
        resume_unwind(Box::new(Refused))
    }
}
