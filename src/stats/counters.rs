//! What a device counts.

use super::{BlockCounters, DeviceStats, Lane, PoolStat, Stat};

/// The counters of one device; [`DeviceStats`] is made of them when someone asks. Sizes in bytes.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// Blocks: what the hot path counts.
    pub blocks: BlockCounters,
    /// Segments held.
    pub segment: PoolStat,
    /// Bytes in segments.
    pub reserved_bytes: PoolStat,
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

impl Counters {
    /// As clients see them.
    pub fn report(&self) -> DeviceStats {
        DeviceStats {
            allocation: self.blocks.stat(Lane::Allocation),
            allocated_bytes: self.blocks.stat(Lane::AllocatedBytes),
            active: self.blocks.active_stat(false),
            active_bytes: self.blocks.active_stat(true),
            requested_bytes: self.blocks.stat(Lane::RequestedBytes),
            segment: self.segment,
            reserved_bytes: self.reserved_bytes,
            inactive_split: self.blocks.stat(Lane::InactiveSplit),
            inactive_split_bytes: self.blocks.stat(Lane::InactiveSplitBytes),
            oversize_allocations: self.oversize_allocations,
            oversize_segments: self.oversize_segments,
            num_alloc_retries: self.num_alloc_retries,
            num_ooms: self.num_ooms,
            num_sync_all_streams: self.num_sync_all_streams,
            num_device_alloc: self.num_device_alloc,
            num_device_free: self.num_device_free,
            num_oom_rejections: self.num_oom_rejections,
        }
    }

    /// Forgets accumulated values and event counts.
    pub fn reset_accumulated(&mut self) {
        self.blocks.reset_accumulated();
        self.segment.reset_accumulated();
        self.reserved_bytes.reset_accumulated();
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
        self.blocks.reset_peak();
        self.segment.reset_peak();
        self.reserved_bytes.reset_peak();
        self.oversize_allocations.reset_peak();
        self.oversize_segments.reset_peak();
    }
}
