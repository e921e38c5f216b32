//! The opt-in checks of what a program does with its memory: red zones behind blocks, poisoned frees,
//! histories. Above `device`: `registry` asks here before and after what it does. Depends on `config`,
//! `device`, `driver`, `error` and `ids`.
//!
//! A free waits for the device ([`Contents::settle`]) before contents are looked at, so free memory is at
//! rest: no work that was submitted in time can still write to it, and an allocation need not wait. Where
//! a thread may not wait, or a graph is being captured, nothing is looked at.
//!
//! [`Contents::settle`]: crate::driver::Contents::settle

mod compare;
mod findings;
mod records;
mod shadow;
mod unsettled;
mod watch;
mod watched;

pub use watch::{Debug, Held};
pub use watched::WatchedDriver;

/// Bytes added to every request for its red zone.
pub const RED_ZONE: usize = 512;
/// The most of a block's slack that is watched, bytes.
const MOST_ZONE: usize = 4096;
/// What red zones hold.
const ZONE_BYTE: u8 = 0xA5;
/// What freed memory holds: as a floating-point number of any width, not a number.
const POISON_BYTE: u8 = 0xFF;
