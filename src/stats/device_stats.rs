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
