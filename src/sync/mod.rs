//! The lock of a device: held for tens of nanoseconds, never across a call that blocks.
//!
//! Taking it is one compare-and-swap, giving it back one store. There is no queue: who finds it taken
//! backs off, longer each time, so that the holder keeps its cache lines for many operations; after that
//! it sleeps for moments. A holder that the system suspends is waited for asleep. The more often a lock is still taken
//! after the first pause, the longer that pause is: threads that do nothing but take the lock by turns spend more time
//! on moving what it protects from one cache to another than on their work. Those of a device get leases then
//! ([`lease`](crate::lease)), and take it for moments ([`Mutex::lock_as_is_soon`]).
//!
//! Who panics with the lock **poisons** it: nobody gets it any more but to read what is there ([`Mutex::look`]), as the
//! value may be half changed. Others that ask for it unwind, quietly, as with the locks of the standard library; the bridge
//! makes an error of that. A poisoned lock stays taken, so that taking and giving back cost what they do without this.

mod as_is;
mod guard;
mod guarded;
mod held;
mod look;
mod mutex;
mod raw_lock;
#[cfg(test)]
mod tests;
mod unwound;

pub use as_is::AsIs;
pub use guard::MutexGuard;
pub use guarded::Guarded;
pub use look::Look;
pub use mutex::Mutex;
pub use unwound::{Refused, take_unwound};
