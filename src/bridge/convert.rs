//! The core's values as the bridge's.

use super::ffi::{BlockView, DeviceStats, MempoolId, Outcome, Stat, StatTriple, Status};
use crate::device::{self, BlockHandle};
use crate::error::AllocError;
use crate::ids::{self, BlockId, DeviceId};
use crate::stats::{self, Lane};

impl From<MempoolId> for ids::MempoolId {
    fn from(id: MempoolId) -> Self {
        Self {
            first: id.first,
            second: id.second,
        }
    }
}

impl From<ids::MempoolId> for MempoolId {
    fn from(id: ids::MempoolId) -> Self {
        Self {
            first: id.first,
            second: id.second,
        }
    }
}

/// A handle as one word: device + 1 (so that it is never 0), generation, block.
fn pack(device: DeviceId, handle: BlockHandle) -> usize {
    ((device.0 as usize + 1) << 48) | (usize::from(handle.generation) << 32) | handle.block.index()
}

pub(super) fn unpack(handle: usize) -> Result<(i32, BlockHandle), AllocError> {
    let device = (handle >> 48) as i32 - 1;
    if device < 0 {
        return Err(AllocError::InvalidPointer { addr: handle });
    }
    let generation = (handle >> 32) as u16;
    Ok((
        device,
        BlockHandle {
            block: BlockId(handle as u32),
            generation,
        },
    ))
}

pub(super) fn block_view(found: Result<(DeviceId, device::BlockView), Outcome>) -> BlockView {
    match found {
        Ok((device, block)) => BlockView {
            status: Status::Ok,
            device: device.0 as i32,
            stream: block.stream.0,
            addr: block.addr,
            size: block.size,
            requested_size: block.requested,
            base_addr: block.base_addr,
            base_size: block.base_size,
            handle: pack(device, block.handle),
        },
        Err(Outcome { status, .. }) => BlockView {
            status,
            device: -1,
            stream: 0,
            addr: 0,
            size: 0,
            requested_size: 0,
            base_addr: 0,
            base_size: 0,
            handle: 0,
        },
    }
}

fn stat(value: stats::Stat) -> Stat {
    Stat {
        current: value.current,
        peak: value.peak,
        allocated: value.allocated,
        freed: value.freed,
    }
}

pub(super) fn pool_stat(value: &stats::PoolStat) -> StatTriple {
    StatTriple {
        aggregate: stat(value.aggregate()),
        small_pool: stat(value.pool(true)),
        large_pool: stat(value.pool(false)),
    }
}

/// Field by field: the struct is a kilobyte, and this is asked often.
pub(super) fn device_stats(
    out: &mut DeviceStats,
    stats: &stats::Counters,
    max_split_size: i64,
    private_pools: usize,
) {
    let blocks = &stats.blocks;
    out.allocation = pool_stat(&blocks.stat(Lane::Allocation));
    out.segment = pool_stat(&stats.segment);
    out.active = pool_stat(&blocks.active_stat(false));
    out.inactive_split = pool_stat(&blocks.stat(Lane::InactiveSplit));
    out.allocated_bytes = pool_stat(&blocks.stat(Lane::AllocatedBytes));
    out.reserved_bytes = pool_stat(&stats.reserved_bytes);
    out.active_bytes = pool_stat(&blocks.active_stat(true));
    out.inactive_split_bytes = pool_stat(&blocks.stat(Lane::InactiveSplitBytes));
    out.requested_bytes = pool_stat(&blocks.stat(Lane::RequestedBytes));
    out.oversize_allocations = stat(stats.oversize_allocations);
    out.oversize_segments = stat(stats.oversize_segments);
    out.num_alloc_retries = stats.num_alloc_retries;
    out.num_ooms = stats.num_ooms;
    out.num_sync_all_streams = stats.num_sync_all_streams;
    out.num_device_alloc = stats.num_device_alloc;
    out.num_device_free = stats.num_device_free;
    out.num_oom_rejections = stats.num_oom_rejections;
    out.max_split_size = max_split_size;
    out.private_pools = private_pools;
}
