//! The context of the call that a thread is in, for entries about other blocks than the call's own.

use std::cell::RefCell;
use std::sync::Arc;

use super::Context;

thread_local! {
    static CALLER: RefCell<Option<Arc<Context>>> = const { RefCell::new(None) };
}

/// As long as this lives its thread's entries have the context of its call. To be dropped without any allocator lock held:
/// the context may be the last of its kind.
#[derive(Debug)]
#[must_use]
pub struct Caller {
    /// That of the call within which this one was made: callbacks may call the allocator.
    before: Option<Arc<Context>>,
}

impl Caller {
    /// Begins a call with a context; without one it goes on as it is.
    pub fn enter(context: Option<Arc<Context>>) -> Option<Self> {
        let mut context = Some(context?);
        // The storage of a thread that ends may be gone: then there is no call.
        let entered = CALLER.try_with(|caller| Self {
            before: caller.replace(context.take()),
        });
        entered.ok()
    }

    /// Begins what is no part of the call, such as functions of the program that the call runs.
    pub fn leave() -> Option<Self> {
        let before = CALLER.try_with(|caller| caller.take()).ok()??;
        Some(Self {
            before: Some(before),
        })
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        // A thread that ends has no calls any more. What was there is dropped when nothing is borrowed.
        let own = CALLER.try_with(|caller| caller.replace(self.before.take()));
        drop(own);
    }
}

/// The context of the call that this thread is in.
pub fn caller() -> Option<Arc<Context>> {
    CALLER
        .try_with(|caller| caller.borrow().clone())
        .ok()
        .flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::DropContext;
    use super::*;

    fn handle() -> Option<usize> {
        caller().map(|context| context.handle())
    }

    #[test]
    fn calls_within_calls_have_contexts_of_their_own() {
        let dropped = Arc::new(Mutex::new(Vec::new()));
        let sink = dropped.clone();
        let drop_context: DropContext = Arc::new(move |handle| sink.lock().unwrap().push(handle));
        assert_eq!(handle(), None);
        let outer = Caller::enter(Context::adopt(1, &drop_context));
        assert_eq!(handle(), Some(1));
        let inner = Caller::enter(Context::adopt(2, &drop_context));
        assert_eq!(handle(), Some(2));
        let none = Caller::enter(None);
        assert_eq!(handle(), Some(2));
        drop(none);
        assert_eq!(handle(), Some(2));
        drop(inner);
        assert_eq!(handle(), Some(1));
        assert_eq!(*dropped.lock().unwrap(), [2]);
        let elsewhere = std::thread::spawn(handle).join().unwrap();
        assert_eq!(elsewhere, None);
        let nobody = Caller::leave();
        assert_eq!(handle(), None);
        drop(nobody);
        assert_eq!(handle(), Some(1));
        drop(outer);
        assert_eq!(handle(), None);
        assert_eq!(*dropped.lock().unwrap(), [2, 1]);
    }

    #[test]
    fn a_thread_that_ends_can_call() {
        struct Late;
        impl Drop for Late {
            fn drop(&mut self) {
                let ignore: DropContext = Arc::new(|_| ());
                assert!(Caller::enter(Context::adopt(1, &ignore)).is_none());
                assert!(Caller::leave().is_none());
                assert_eq!(handle(), None);
                *ENDED.lock().unwrap() = true;
            }
        }
        static ENDED: Mutex<bool> = Mutex::new(false);
        thread_local!(static LATE: Late = const { Late });
        // Storage is destroyed in the reverse of the order in which it is first used.
        let ended = std::thread::spawn(|| {
            LATE.with(|_| ());
            let ignore: DropContext = Arc::new(|_| ());
            drop(Caller::enter(Context::adopt(2, &ignore)));
        });
        ended.join().unwrap();
        assert!(*ENDED.lock().unwrap());
    }
}
