//! The lock of a device: one at a time, and who takes it sees what was done under it before.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use npualloc::sync::{Guarded, Mutex, MutexGuard};

use crate::{every_order, joined, thread};

/// A number whose accesses loom watches, and whether it is late.
struct Value {
    number: UnsafeCell<usize>,
    late: bool,
}

// The lock's duty, which is what is checked.
unsafe impl Send for Value {}

impl Guarded for Value {
    fn entered(&mut self) {
        if std::mem::take(&mut self.late) {
            self.add();
        }
    }
}

impl Value {
    fn locked() -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            number: UnsafeCell::new(0),
            late: false,
        }))
    }

    fn add(&mut self) {
        // SAFETY: the value is borrowed mutably; loom fails the model where two threads get here at once.
        self.number.with_mut(|number| unsafe { *number += 1 });
    }

    fn get(&self) -> usize {
        // SAFETY: as above.
        self.number.with(|number| unsafe { *number })
    }
}

#[test]
fn holders_see_what_holders_did() {
    every_order(3, || {
        let lock = Value::locked();
        let add = |lock: Arc<Mutex<Value>>| {
            thread(move || {
                lock.lock().add();
                lock.lock_or_unwind().with(|value| value.add());
            })
        };
        let (one, other) = (add(lock.clone()), add(lock.clone()));
        joined(one);
        joined(other);
        assert_eq!(lock.lock().get(), 4);
    });
}

#[test]
fn three_threads_take_turns() {
    every_order(1, || {
        let lock = Value::locked();
        let add = |lock: Arc<Mutex<Value>>| thread(move || lock.lock().add());
        for thread in [0, 1, 2].map(|_| add(lock.clone())) {
            joined(thread);
        }
        assert_eq!(lock.lock().get(), 3);
    });
}

#[test]
fn what_is_late_is_done_by_whoever_looks() {
    every_order(3, || {
        let lock = Value::locked();
        let leave = lock.clone();
        let leaves = thread(move || leave.lock_or_unwind().with(|value| value.late = true));
        let look = lock.clone();
        let looks = thread(move || {
            let mut guard = look.lock();
            assert!(!guard.late);
            let before = guard.get();
            MutexGuard::unlocked(&mut guard, || ());
            assert!(!guard.late);
            assert!(guard.get() >= before);
        });
        joined(leaves);
        joined(looks);
        assert_eq!(lock.lock().get(), 1);
    });
}

#[test]
fn nobody_changes_what_is_poisoned_and_who_reads_sees_all_of_it() {
    every_order(3, || {
        let lock = Value::locked();
        let poison = lock.clone();
        let poisons = thread(move || {
            poison.lock().add();
            poison.poison();
        });
        let add = lock.clone();
        let adds = thread(move || {
            let guard = add.lock_if_sound();
            let added = guard.map(|mut guard| guard.add()).is_some();
            (added, add.is_poisoned(), add.look().get())
        });
        joined(poisons);
        let (added, poisoned, seen) = joined(adds);
        assert!(lock.is_poisoned() && lock.lock_if_sound().is_none());
        let all = 1 + usize::from(added);
        assert_eq!(lock.look().get(), all);
        assert!(seen == all || added && !poisoned);
    });
}
