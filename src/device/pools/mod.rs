//! Private pools: captures of graphs, checkpoints, sleep. Depends on `blocks`, `policy`, `streams`, and on `paging` and `reclaim` to
//! put memory to sleep.

mod captures;
mod checkpoint;
mod sleep;
pub(super) mod sleepers;

pub use checkpoint::{Checkpoint, Restored};
