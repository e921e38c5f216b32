//! What threads share: from the standard library, and in models of the core (`cfg(loom)`, see `models`) from
//! loom, which runs them in every order. Depends on nothing.

#[cfg(not(loom))]
mod real {
    pub use parking_lot::Mutex as BlockingMutex;
    pub use std::hint::spin_loop;
    pub use std::sync::OnceLock;
    pub use std::sync::atomic;
    pub use std::thread::sleep;
}
#[cfg(not(loom))]
pub use real::*;

#[cfg(loom)]
mod modelled;
#[cfg(loom)]
pub use modelled::*;
