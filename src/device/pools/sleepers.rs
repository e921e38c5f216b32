//! Which pools sleep.

use crate::error::{AllocError, Result};
use crate::ids::{DeviceId, PoolId};

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

    /// A pool that sleeps serves no request.
    pub fn refuse(&self, pool: PoolId, device: DeviceId) -> Result<()> {
        if !self.has(pool) {
            return Ok(());
        }
        Err(AllocError::Sleep {
            what: "the pool asked for memory is asleep, and has to wake up first, on device",
            device,
        })
    }
}
