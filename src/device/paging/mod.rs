//! Virtual segments: where a request is served by mapping memory, which memory moves there, and the driver's calls for it.
//! Depends on `state`, `transitions`, `policy`, `streams` for who used memory last, `pools` for what must
//! stay, and `ladder` to give idle memory back where the driver refuses.

pub(super) mod alias;
mod best_window;
mod donor;
mod gather;
mod mapping;
mod missing;
pub(super) mod physical;
pub(super) mod prefetch;
mod probe;
mod unmapping;
mod virtual_blocks;
mod window;

pub(super) use best_window::Window;
