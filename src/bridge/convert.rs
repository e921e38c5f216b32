//! The core's values as the bridge's.

use super::ffi::{
    BlockView, DeviceStats, MempoolId, Outcome, Stat, StatCounts, StatTriple, Status,
};
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

/// Pair by pair, which are single stores where they were computed as such.
#[inline]
fn fill(out: &mut Stat, [now, ever]: stats::Figures) {
    [out.current, out.peak] = now;
    [out.allocated, out.freed] = ever;
}

#[inline]
fn write(out: &mut StatTriple, [small, large, both]: [stats::Figures; 3]) {
    fill(&mut out.aggregate, both);
    fill(&mut out.small_pool, small);
    fill(&mut out.large_pool, large);
}

pub(super) fn pool_stat(value: &stats::PoolStat) -> StatTriple {
    let mut triple = StatTriple::default();
    write(&mut triple, value.parts());
    triple
}

/// The statistics by pool, in the bridge's order. In place: they are most of a kilobyte, and asked often.
pub(super) fn triples(
    stats: &stats::Counters,
    front: &mut [StatTriple; 6],
    back: &mut [StatTriple; 3],
) {
    let blocks = &stats.blocks;
    let [allocation, segment, active, split, allocated, reserved] = front;
    let [active_bytes, split_bytes, requested] = back;
    write(allocation, blocks.parts(Lane::Allocation));
    write(segment, stats.segment.parts());
    write(active, blocks.active_parts(false));
    write(split, blocks.parts(Lane::InactiveSplit));
    write(allocated, blocks.parts(Lane::AllocatedBytes));
    write(reserved, stats.reserved_bytes.parts());
    write(active_bytes, blocks.active_parts(true));
    write(split_bytes, blocks.parts(Lane::InactiveSplitBytes));
    write(requested, blocks.parts(Lane::RequestedBytes));
}

/// The statistics over both pools, and counts of events.
pub(super) fn other_stats(
    stats: &stats::Counters,
    oversize: &mut [Stat; 2],
    counts: &mut StatCounts,
) {
    let [allocations, segments] = oversize;
    *allocations = stat(stats.oversize_allocations);
    *segments = stat(stats.oversize_segments);
    counts.num_alloc_retries = stats.num_alloc_retries;
    counts.num_ooms = stats.num_ooms;
    counts.num_sync_all_streams = stats.num_sync_all_streams;
    counts.num_device_alloc = stats.num_device_alloc;
    counts.num_device_free = stats.num_device_free;
    counts.num_oom_rejections = stats.num_oom_rejections;
}

/// All of it in one struct.
pub(super) fn device_stats(
    out: &mut DeviceStats,
    stats: &stats::Counters,
    max_split_size: i64,
    private_pools: usize,
) {
    let (mut front, mut back) = Default::default();
    let (mut oversize, mut counts) = Default::default();
    triples(stats, &mut front, &mut back);
    other_stats(stats, &mut oversize, &mut counts);
    [
        out.allocation,
        out.segment,
        out.active,
        out.inactive_split,
        out.allocated_bytes,
        out.reserved_bytes,
    ] = front;
    [
        out.active_bytes,
        out.inactive_split_bytes,
        out.requested_bytes,
    ] = back;
    [out.oversize_allocations, out.oversize_segments] = oversize;
    out.num_alloc_retries = counts.num_alloc_retries;
    out.num_ooms = counts.num_ooms;
    out.num_sync_all_streams = counts.num_sync_all_streams;
    out.num_device_alloc = counts.num_device_alloc;
    out.num_device_free = counts.num_device_free;
    out.num_oom_rejections = counts.num_oom_rejections;
    out.max_split_size = max_split_size;
    out.private_pools = private_pools;
}
