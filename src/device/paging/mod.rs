//! Virtual segments: which windows of addresses could serve a request, which memory moves there, and the driver's calls for it.
//! Depends on `blocks`, `policy`, and `streams` for who used memory last.

pub(super) mod alias;
mod best_window;
mod donor;
mod fullness;
mod gather;
mod mapping;
mod missing;
pub(super) mod physical;
pub(super) mod prefetch;
mod probe;
mod refusal;
mod runs;
mod unmapping;
mod window;

pub(super) use best_window::{Window, Windows};
pub(super) use refusal::Refusal;
pub(super) use window::{Terms, WAIT};
