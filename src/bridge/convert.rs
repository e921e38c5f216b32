//! The core's values as the bridge's.

use super::ffi::{
    BlockView, DeviceStats, MempoolId, Outcome, Stat, StatBack, StatFront, StatTriple, Status,
};
use crate::device::{self, BlockHandle};
use crate::error::AllocError;
use crate::ids::{self, BlockId, DeviceId};
use crate::stats::{self, BlockCounters, Lane};

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

/// What was counted, written where all is 0. In place: it is most of a kilobyte, and asked often. For the same reason what
/// was never counted is left out, and what active blocks share with live ones is computed once.
pub(super) fn front_and_back(stats: &stats::Counters, front: &mut StatFront, back: &mut StatBack) {
    let blocks = &stats.blocks;
    let [allocation, segment, active, split, allocated, reserved] = &mut front.of;
    let [active_bytes, split_bytes, requested] = &mut back.of;
    write_both(blocks, false, allocation, active);
    write_both(blocks, true, allocated, active_bytes);
    write(requested, blocks.parts(Lane::RequestedBytes));
    write(segment, stats.segment.parts());
    write(reserved, stats.reserved_bytes.parts());
    for (lane, out) in [
        (Lane::InactiveSplit, split),
        (Lane::InactiveSplitBytes, split_bytes),
    ] {
        if blocks.ever_counted(lane) {
            write(out, blocks.parts(lane));
        }
    }
    back.num_alloc_retries = stats.num_alloc_retries;
    back.num_ooms = stats.num_ooms;
    back.oversize_allocations = stat(stats.oversize_allocations);
    back.oversize_segments = stat(stats.oversize_segments);
    back.num_sync_all_streams = stats.num_sync_all_streams;
    back.num_device_alloc = stats.num_device_alloc;
    back.num_device_free = stats.num_device_free;
}

/// The figures of live and of active blocks (`bytes` false), or of the bytes in them.
#[inline]
fn write_both(blocks: &BlockCounters, bytes: bool, live: &mut StatTriple, active: &mut StatTriple) {
    let figures = blocks.live_parts(bytes);
    write(live, figures);
    if blocks.has_waited() {
        write(active, blocks.active_parts(bytes));
    } else {
        write(active, figures);
    }
}

/// All of it in one struct, which is all zeros.
pub(super) fn device_stats(
    out: &mut DeviceStats,
    stats: &stats::Counters,
    max_split_size: i64,
    private_pools: usize,
) {
    let (mut front, mut back) = Default::default();
    front_and_back(stats, &mut front, &mut back);
    [
        out.allocation,
        out.segment,
        out.active,
        out.inactive_split,
        out.allocated_bytes,
        out.reserved_bytes,
    ] = front.of;
    [
        out.active_bytes,
        out.inactive_split_bytes,
        out.requested_bytes,
    ] = back.of;
    out.oversize_allocations = back.oversize_allocations;
    out.oversize_segments = back.oversize_segments;
    out.num_alloc_retries = back.num_alloc_retries;
    out.num_ooms = back.num_ooms;
    out.num_sync_all_streams = back.num_sync_all_streams;
    out.num_device_alloc = back.num_device_alloc;
    out.num_device_free = back.num_device_free;
    out.num_oom_rejections = stats.num_oom_rejections;
    out.max_split_size = max_split_size;
    out.private_pools = private_pools;
}
