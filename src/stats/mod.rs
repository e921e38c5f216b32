//! Counters. Exact and cheap: the hot path updates a few integers; sums over pools and the
//! accumulated frees are derived when asked. Pure.

mod allowance;
mod block_counters;
mod block_figures;
mod counters;
mod device_stats;
mod ladder;
mod pair;
mod pools;
mod stat;

pub use allowance::Allowance;
pub use block_counters::{BlockCounters, Lane};
pub use counters::Counters;
pub use device_stats::DeviceStats;
pub use ladder::Ladder;
pub use stat::{Figures, PoolStat, Stat};
