//! The statistics of one device.

use super::{PoolStat, Stat};

/// Keys and meanings are those of `torch.npu.memory_stats()`. Sizes in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Live allocations.
    pub allocation: PoolStat,
    /// Bytes in live allocations, after rounding.
    pub allocated_bytes: PoolStat,
    /// Live allocations and freed ones that wait for events.
    pub active: PoolStat,
    /// Bytes in active blocks.
    pub active_bytes: PoolStat,
    /// Bytes asked for by the client, of active blocks.
    pub requested_bytes: PoolStat,
    /// Segments held.
    pub segment: PoolStat,
    /// Bytes in segments.
    pub reserved_bytes: PoolStat,
    /// Free blocks that are parts of a segment in use.
    pub inactive_split: PoolStat,
    /// Bytes in such blocks.
    pub inactive_split_bytes: PoolStat,
    /// Live allocations of at least `max_split_size`.
    pub oversize_allocations: Stat,
    /// Segments of at least `max_split_size`.
    pub oversize_segments: Stat,
    /// Allocations tried again after cached memory was released.
    pub num_alloc_retries: i64,
    /// Requests that failed for want of memory.
    pub num_ooms: i64,
    /// Times all outstanding events were waited for.
    pub num_sync_all_streams: i64,
    /// Driver calls that obtained memory.
    pub num_device_alloc: i64,
    /// Driver calls that returned memory.
    pub num_device_free: i64,
    /// Requests refused by policy.
    pub num_oom_rejections: i64,
}

impl DeviceStats {
    fn pool_stats(&mut self) -> [&mut PoolStat; 9] {
        [
            &mut self.allocation,
            &mut self.allocated_bytes,
            &mut self.active,
            &mut self.active_bytes,
            &mut self.requested_bytes,
            &mut self.segment,
            &mut self.reserved_bytes,
            &mut self.inactive_split,
            &mut self.inactive_split_bytes,
        ]
    }

    /// Forgets accumulated values and event counts.
    pub fn reset_accumulated(&mut self) {
        self.pool_stats()
            .into_iter()
            .for_each(PoolStat::reset_accumulated);
        self.oversize_allocations.reset_accumulated();
        self.oversize_segments.reset_accumulated();
        self.num_alloc_retries = 0;
        self.num_ooms = 0;
        self.num_sync_all_streams = 0;
        self.num_device_alloc = 0;
        self.num_device_free = 0;
        self.num_oom_rejections = 0;
    }

    /// Peaks become the current values.
    pub fn reset_peak(&mut self) {
        self.pool_stats().into_iter().for_each(PoolStat::reset_peak);
        self.oversize_allocations.reset_peak();
        self.oversize_segments.reset_peak();
    }
}
