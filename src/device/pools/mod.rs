//! Private pools: captures of graphs, checkpoints, sleep. Depends on `state`, `transitions`, `policy`, and on `paging`,
//! `streams` and `ladder` to put memory to sleep.

mod captures;
mod checkpoint;
mod sleep;
pub(super) mod sleepers;

pub use checkpoint::{Checkpoint, Restored};
