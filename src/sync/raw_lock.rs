use std::time::Duration;

use crate::primitives::atomic::{AtomicU8, Ordering};
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

const FREE: u8 = 0;
const TAKEN: u8 = 1;
/// Its holder panicked: never free again. Together with [`TAKEN`] while someone reads.
const POISONED: u8 = 2;

/// The lock without what it protects: see the module's text.
pub(super) struct RawLock {
    word: AtomicU8,
    /// How much longer than usual the first pause is: one more each time the lock is still taken after it, one less
    /// each time it is not. Only who waits looks at it, so that a count lost between two threads does no harm.
    contended: AtomicU8,
}

impl RawLock {
    /// An unlocked one.
    pub fn new() -> Self {
        Self {
            word: AtomicU8::new(FREE),
            contended: AtomicU8::new(0),
        }
    }

    /// Takes it; false, without it, where it is poisoned.
    #[inline]
    pub fn lock(&self) -> bool {
        self.try_lock() || self.wait()
    }

    /// Takes it, if nobody has it and it is not poisoned.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.change(FREE, TAKEN)
    }

    /// Takes it although it may be poisoned; true where it is not.
    #[cold]
    pub fn lock_anyway(&self) -> bool {
        if self.lock() {
            return true;
        }
        while !self.change(POISONED, POISONED | TAKEN) {
            sleep(NAP);
        }
        false
    }

    /// Its holder gives it back.
    #[inline]
    pub fn unlock(&self) {
        self.word.store(FREE, Ordering::Release);
    }

    /// Its holder gives it back, poisoned.
    #[cold]
    pub fn poison(&self) {
        self.word.store(POISONED, Ordering::Release);
    }

    pub fn is_poisoned(&self) -> bool {
        self.word.load(Ordering::Acquire) & POISONED != 0
    }

    #[inline]
    fn change(&self, from: u8, to: u8) -> bool {
        self.word
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// As [`Self::lock`].
    #[cold]
    fn wait(&self) -> bool {
        let contended = self.contended.load(Ordering::Relaxed);
        if let Some(taken) = self.try_after(FIRST_PAUSES << contended) {
            let less = contended.saturating_sub(1);
            self.contended.store(less, Ordering::Relaxed);
            return taken;
        }
        let more = contended + u8::from(contended != MOST_CONTENDED);
        self.contended.store(more, Ordering::Relaxed);
        let (mut pauses, mut tries) = (FIRST_PAUSES << more, 0);
        loop {
            if let Some(taken) = self.try_after(pauses) {
                return taken;
            }
            if pauses < MOST_PAUSES {
                pauses *= 2;
            } else if tries < PATIENCE {
                tries += 1;
            } else {
                sleep(NAP);
            }
        }
    }

    /// Tries to take the lock after so many pauses, in which the holder's cache lines are left alone: whether it did, where
    /// there is no need to try again.
    fn try_after(&self, pauses: u32) -> Option<bool> {
        for _ in 0..pauses {
            spin_loop();
        }
        match self.word.load(Ordering::Relaxed) {
            FREE => self.try_lock().then_some(true),
            TAKEN => None,
            _ => Some(false),
        }
    }
}
