//! What one thread hands out and takes back without the device's lock, while several threads ask for it: blocks it has
//! on lease, and a part of the room below the peaks. Pure but for the slots' locks; depends on ids, sizes, statistics and
//! locks only.

mod leased;
mod leases;
mod sizes;
mod table;
mod terms;

#[doc(hidden)]
#[cfg(not(loom))]
pub use crate::primitives::act_as;
pub use leased::Lease;
pub use leases::{Leases, Slot};
pub use terms::{Former, Put, Returned, Terms};
