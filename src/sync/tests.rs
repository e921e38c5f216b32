use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Guarded, Mutex, MutexGuard, Refused, take_unwound};

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

fn as_it_is(lock: &Mutex<Counted>) -> Counted {
    lock.lock_or_unwind().with(|value| *value)
}

#[test]
fn every_way_in_and_out_is_told() {
    let lock = Mutex::new(Counted(0, 0, 0));
    let mut guard = lock.lock();
    assert_eq!(*guard, Counted(1, 0, 0));
    MutexGuard::unlocked(&mut guard, || {
        assert_eq!(as_it_is(&lock), Counted(1, 1, 0));
    });
    assert_eq!(*guard, Counted(2, 1, 0));
    MutexGuard::catch_up(&mut guard);
    assert_eq!(*guard, Counted(2, 1, 0));
    drop(guard);
    assert_eq!(as_it_is(&lock), Counted(2, 2, 0));
    assert_eq!(*lock.look(), Counted(3, 2, 0));
    assert_eq!(as_it_is(&lock), Counted(3, 2, 0));
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

/// What `work` unwinds with, and whether it does so with or for want of the lock.
fn unwinds(lock: &Mutex<Counted>, work: impl FnOnce()) -> (bool, bool) {
    take_unwound();
    let panic = catch_unwind(AssertUnwindSafe(work)).expect_err("unwinds");
    (panic.is::<Refused>(), take_unwound() == lock.address())
}

const BUG: (bool, bool) = (false, true);
const REFUSED: (bool, bool) = (true, true);

/// Every way to have the lock while a thread panics.
#[test]
fn who_panics_with_the_lock_poisons_it() {
    let ways: [fn(&Mutex<Counted>); 9] = [
        |lock| {
            let _guard = lock.lock();
            panic!("a bug");
        },
        |lock| {
            let _guard = lock.lock_keeping();
            panic!("a bug");
        },
        |lock| {
            let _guard = lock.lock_if_sound();
            panic!("a bug");
        },
        |lock| {
            let _guard = lock.lock_keeping_if_sound();
            panic!("a bug");
        },
        |lock| {
            let _look = lock.look();
            panic!("a bug");
        },
        |lock| lock.lock_or_unwind().with(|_| panic!("a bug")),
        |lock| {
            let taken = lock.try_lock_as_is().expect("free");
            taken.with(|_| panic!("a bug"));
        },
        |lock| {
            let (taken, ()) = lock.lock_as_is_soon().expect("free").hold(|_| ());
            taken.with(|_| panic!("a bug"));
        },
        |lock| MutexGuard::unlocked(&mut lock.lock(), || panic!("a bug")),
    ];
    for (at, way) in ways.into_iter().enumerate() {
        let lock = Mutex::new(Counted(0, 0, 0));
        assert_eq!(unwinds(&lock, || way(&lock)), BUG, "{at}");
        assert!(lock.is_poisoned(), "{at}");
        assert_eq!(unwinds(&lock, || drop(lock.lock())), REFUSED, "{at}");
    }
}

#[test]
fn a_poisoned_lock_is_there_to_read_alone() {
    let lock = Mutex::new(Counted(0, 0, 0));
    lock.poison();
    lock.poison();
    assert!(lock.lock_if_sound().is_none() && lock.lock_keeping_if_sound().is_none());
    assert!(lock.lock_as_is().is_none() && lock.lock_as_is_soon().is_none());
    assert!(lock.try_lock_as_is().is_none());
    for refused in [Mutex::lock, Mutex::lock_unseen, Mutex::lock_keeping] {
        assert_eq!(unwinds(&lock, || drop(refused(&lock))), REFUSED);
    }
    // As it was left, again and again, also after a reader panicked.
    assert_eq!(*lock.look(), Counted(0, 0, 0));
    let reader = || {
        let _look = lock.look();
        panic!("a bug");
    };
    assert_eq!(unwinds(&lock, reader), BUG);
    assert_eq!(*lock.look(), Counted(0, 0, 0));
    assert!(lock.is_poisoned());
}

#[test]
fn a_lock_that_was_given_back_for_a_call_may_be_poisoned_meanwhile() {
    let lock = Mutex::new(Counted(0, 0, 0));
    let poison = || {
        let _guard = lock.lock();
        panic!("a bug");
    };
    let refused = || {
        MutexGuard::unlocked(&mut lock.lock(), || {
            assert_eq!(unwinds(&lock, poison), BUG);
        });
    };
    assert_eq!(unwinds(&lock, refused), REFUSED);
    assert!(lock.is_poisoned());
    // Both threads came in; only the first gave it back in order.
    assert_eq!(*lock.look(), Counted(2, 1, 0));
}

#[test]
fn a_panic_elsewhere_poisons_nothing() {
    /// Takes the lock while the thread unwinds, as a destructor may.
    struct Late<'a>(&'a Mutex<Counted>);

    impl Drop for Late<'_> {
        fn drop(&mut self) {
            MutexGuard::unlocked(&mut self.0.lock(), || ());
            drop(self.0.look());
            self.0.lock_or_unwind().with(|_| ());
        }
    }

    let lock = Mutex::new(Counted(0, 0, 0));
    take_unwound();
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let _late = Late(&lock);
        panic!("not the lock's");
    }));
    assert!(panic.is_err());
    assert_eq!(take_unwound(), 0);
    assert!(!lock.is_poisoned());
    assert_eq!(as_it_is(&lock), Counted(3, 2, 0));
}

/// A value that panics while it is brought up to date, or left.
struct Broken {
    entering: bool,
}

impl Guarded for Broken {
    fn entered(&mut self) {
        assert!(!self.entering, "a bug");
    }

    fn leaving(&mut self) {
        panic!("a bug");
    }
}

#[test]
fn what_is_done_on_the_way_in_and_out_counts() {
    for entering in [false, true] {
        let lock = Mutex::new(Broken { entering });
        assert!(catch_unwind(AssertUnwindSafe(|| drop(lock.lock()))).is_err());
        assert!(lock.is_poisoned());
    }
    let lock = Mutex::new(Broken { entering: true });
    assert!(catch_unwind(AssertUnwindSafe(|| drop(lock.look()))).is_err());
    assert!(lock.is_poisoned());
}

#[test]
fn who_waits_for_a_lock_sees_it_poisoned() {
    let lock = Mutex::new(());
    std::thread::scope(|scope| {
        let held = lock.lock();
        let waits = scope.spawn(|| lock.lock_if_sound().is_none());
        let reads = scope.spawn(|| drop(lock.look()));
        std::thread::sleep(std::time::Duration::from_millis(20));
        let poison = || {
            let _held = held;
            panic!("a bug");
        };
        assert!(catch_unwind(AssertUnwindSafe(poison)).is_err());
        assert!(waits.join().expect("no panic"));
        reads.join().expect("reads");
    });
}
