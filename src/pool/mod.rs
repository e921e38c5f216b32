//! Pools: the private ones and their lifetimes, and which free index serves an allocation. Depends on
//! block, stats and ids.

mod lists;
mod table;

pub use lists::{FreeList, FreeLists};
pub use table::{PoolTable, PrivatePool};
