//! Pools: which free index serves an allocation. Depends on block and ids.

mod lists;

pub use lists::{FreeList, FreeLists};
