//! Loom's counterparts. They are made inside a model only.

use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread::yield_now;

pub use loom::hint::spin_loop;
pub use loom::sync::atomic;

/// Time does not pass in a model: somebody else goes on.
pub fn sleep(_: Duration) {
    yield_now();
}

/// The calling thread's number.
pub fn thread_number() -> usize {
    // What it shows is the only thing it tells: `ThreadId(0)`.
    let shown = format!("{:?}", loom::thread::current().id());
    let digits = shown
        .chars()
        .filter(char::is_ascii_digit)
        .collect::<String>();
    digits.parse().unwrap_or_default()
}

/// A lock that its waiters sleep on.
#[derive(Debug)]
pub struct BlockingMutex<T>(loom::sync::Mutex<T>);

impl<T> BlockingMutex<T> {
    /// An unlocked one.
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    /// Takes the lock. A thread that panicked with it has failed the model.
    pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

const EMPTY: usize = 0;
const BUSY: usize = 1;
const READY: usize = 2;

/// What the standard library promises of its `OnceLock`: who finds a value sees all that went into it, and
/// who comes while it is made waits.
#[derive(Debug)]
pub struct OnceLock<T> {
    state: AtomicUsize,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is written once, by who turned `state` from EMPTY to BUSY, and read only where READY was
// seen, which is stored after that; loom checks both.
#[allow(unsafe_code)]
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// Without a value.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self {
            state: AtomicUsize::new(EMPTY),
            value: UnsafeCell::new(None),
        }
    }

    /// The value, if it is there.
    pub fn get(&self) -> Option<&T> {
        if self.state.load(Ordering::Acquire) != READY {
            return None;
        }
        // SAFETY: READY was seen: nobody writes any more.
        #[allow(unsafe_code)]
        self.value.with(|value| unsafe { (*value).as_ref() })
    }

    /// The value; `make` makes it if nobody has.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let mut make = Some(make);
        loop {
            if let Some(value) = self.get() {
                return value;
            }
            let claimed = self
                .state
                .compare_exchange(EMPTY, BUSY, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
            if let Some(make) = make.take_if(|_| claimed) {
                let made = make();
                // SAFETY: nobody else found EMPTY, and nobody reads before READY.
                #[allow(unsafe_code)]
                self.value.with_mut(|value| unsafe { *value = Some(made) });
                self.state.store(READY, Ordering::Release);
            } else {
                yield_now();
            }
        }
    }

    /// Gives it a value; it comes back if there is one.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| match value.take() {
            Some(value) => value,
            None => unreachable!("called once"),
        });
        value.map_or(Ok(()), Err)
    }
}
