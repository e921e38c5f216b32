//! Which pools sleep.

use crate::ids::PoolId;

/// Pools whose memory is with the driver for now.
#[derive(Default)]
pub(in crate::device) struct Sleep {
    pub pools: Vec<PoolId>,
    /// A thread puts pages to sleep, or wakes them.
    pub changing: bool,
}

impl Sleep {
    /// Whether a pool serves nobody for now.
    pub fn has(&self, pool: PoolId) -> bool {
        self.pools.contains(&pool)
    }
}
