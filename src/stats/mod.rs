//! Counters. Exact and cheap: the hot path updates a few integers; sums over pools and the
//! accumulated frees are derived when asked. Pure.

mod device_stats;
mod stat;

pub use device_stats::DeviceStats;
pub use stat::{PoolStat, Stat};
