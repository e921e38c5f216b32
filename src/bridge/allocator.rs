//! The allocator as C++ holds it.

use std::sync::Arc;

use super::ffi::{
    AllocOutcome, BlockView, CacheInfo, DeviceStats, FractionOutcome, Outcome, Stat, StatTriple,
    Status, StreamToken,
};
use super::outcome::{OK, guard, outcome};
use crate::config::Settings;
use crate::device::{self, BlockHandle};
use crate::driver::foreign::{DriverTable, ForeignDriver};
use crate::error::AllocError;
use crate::ids::{BlockId, DeviceId, MempoolId, StreamKey};
use crate::registry::Registry;
use crate::stats;

/// The allocator of a process.
pub struct Allocator {
    registry: Registry,
}

/// See the bridge's declaration.
///
/// # Safety
/// The functions in `table` must uphold the contract of `driver_table.h` for as long as the process
/// lives.
pub unsafe fn new_allocator(
    table: &DriverTable,
    config: &str,
    pad_bytes: usize,
) -> Result<Box<Allocator>, AllocError> {
    let settings = Settings::parse(config)?;
    // SAFETY: the caller's promise.
    let driver = unsafe { ForeignDriver::new(*table) };
    let registry = Registry::new(Arc::new(driver), settings, pad_bytes);
    Ok(Box::new(Allocator { registry }))
}

impl Allocator {
    pub(super) fn init(&self, device_count: i32) -> Outcome {
        outcome(|| self.registry.init(device_count))
    }

    pub(super) fn device_count(&self) -> i32 {
        self.registry.device_count()
    }

    #[inline]
    pub(super) fn allocate(&self, device: i32, bytes: usize, stream: usize) -> AllocOutcome {
        match guard(|| self.registry.allocate(device, bytes, StreamKey(stream))) {
            Ok(addr) => AllocOutcome { addr, status: Status::Ok, code: 0 },
            Err(Outcome { status, code }) => AllocOutcome { addr: 0, status, code },
        }
    }

    #[inline]
    pub(super) fn deallocate(&self, addr: usize) -> Outcome {
        outcome(|| self.registry.deallocate(addr))
    }

    pub(super) fn record_stream(&self, addr: usize, stream: StreamToken) -> Outcome {
        outcome(|| self.registry.record_stream(addr, stream))
    }

    pub(super) fn erase_stream(&self, addr: usize, stream: StreamToken) -> Outcome {
        outcome(|| self.registry.erase_stream(addr, stream))
    }

    pub(super) fn describe_block(&self, addr: usize) -> BlockView {
        convert_block(guard(|| self.registry.describe_block(addr)))
    }

    pub(super) fn describe_handle(&self, handle: usize) -> BlockView {
        convert_block(guard(|| {
            let (device, handle) = unpack(handle)?;
            self.registry.describe_handle(device, handle)
        }))
    }

    pub(super) fn erase_stream_by_handle(&self, handle: usize, stream: StreamToken) -> Outcome {
        outcome(|| {
            let (device, handle) = unpack(handle)?;
            self.registry.erase_stream_of(device, handle, stream)
        })
    }

    pub(super) fn empty_cache(&self, device: i32) -> Outcome {
        outcome(|| self.registry.device(device)?.empty_cache(MempoolId::DEFAULT))
    }

    pub(super) fn cache_info(&self, device: i32) -> CacheInfo {
        match guard(|| Ok(self.registry.device(device)?.cache_info())) {
            Ok((total, largest)) => CacheInfo { status: Status::Ok, total, largest },
            Err(Outcome { status, .. }) => CacheInfo { status, total: 0, largest: 0 },
        }
    }

    pub(super) fn drop_pending_events(&self, device: i32) -> Outcome {
        outcome(|| {
            self.registry.device(device)?.drop_pending_events();
            Ok(())
        })
    }

    pub(super) fn device_stats(&self, device: i32, out: &mut DeviceStats) -> Outcome {
        match guard(|| Ok(self.registry.device(device)?.stats())) {
            Ok((stats, max_split_size)) => {
                *out = convert_stats(&stats, max_split_size);
                OK
            }
            Err(outcome) => outcome,
        }
    }

    pub(super) fn reset_accumulated_stats(&self, device: i32) -> Outcome {
        outcome(|| {
            self.registry.device(device)?.reset_accumulated_stats();
            Ok(())
        })
    }

    pub(super) fn reset_peak_stats(&self, device: i32) -> Outcome {
        outcome(|| {
            self.registry.device(device)?.reset_peak_stats();
            Ok(())
        })
    }

    pub(super) fn memory_fraction(&self, device: i32) -> FractionOutcome {
        match guard(|| self.registry.device(device)?.memory_fraction()) {
            Ok(value) => FractionOutcome { value, status: Status::Ok, code: 0 },
            Err(Outcome { status, code }) => FractionOutcome { value: 0.0, status, code },
        }
    }

    pub(super) fn set_memory_fraction(&self, device: i32, fraction: f64) -> Outcome {
        outcome(|| self.registry.device(device)?.set_memory_fraction(fraction))
    }

    pub(super) fn apply_settings(&self, settings: &str) -> Result<(), AllocError> {
        self.registry.apply_settings(settings)
    }

    pub(super) fn begin_process_exit(&self) {
        self.registry.begin_process_exit();
    }

    pub(super) fn check_consistency(&self) -> Result<(), AllocError> {
        self.registry.check_consistency()
    }
}

/// A handle as one word: device + 1 (so that it is never 0), generation, block.
fn pack(device: DeviceId, handle: BlockHandle) -> usize {
    ((device.0 as usize + 1) << 48) | (usize::from(handle.generation) << 32) | handle.block.index()
}

fn unpack(handle: usize) -> Result<(i32, BlockHandle), AllocError> {
    let device = (handle >> 48) as i32 - 1;
    if device < 0 {
        return Err(AllocError::InvalidPointer { addr: handle });
    }
    let generation = (handle >> 32) as u16;
    Ok((device, BlockHandle { block: BlockId(handle as u32), generation }))
}

fn convert_block(found: Result<(DeviceId, device::BlockView), Outcome>) -> BlockView {
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

fn convert_stat(stat: stats::Stat) -> Stat {
    Stat {
        current: stat.current,
        peak: stat.peak,
        allocated: stat.allocated,
        freed: stat.freed,
    }
}

fn convert_pool_stat(stat: &stats::PoolStat) -> StatTriple {
    StatTriple {
        aggregate: convert_stat(stat.aggregate()),
        small_pool: convert_stat(stat.pool(true)),
        large_pool: convert_stat(stat.pool(false)),
    }
}

fn convert_stats(stats: &stats::DeviceStats, max_split_size: i64) -> DeviceStats {
    DeviceStats {
        allocation: convert_pool_stat(&stats.allocation),
        segment: convert_pool_stat(&stats.segment),
        active: convert_pool_stat(&stats.active),
        inactive_split: convert_pool_stat(&stats.inactive_split),
        allocated_bytes: convert_pool_stat(&stats.allocated_bytes),
        reserved_bytes: convert_pool_stat(&stats.reserved_bytes),
        active_bytes: convert_pool_stat(&stats.active_bytes),
        inactive_split_bytes: convert_pool_stat(&stats.inactive_split_bytes),
        requested_bytes: convert_pool_stat(&stats.requested_bytes),
        oversize_allocations: convert_stat(stats.oversize_allocations),
        oversize_segments: convert_stat(stats.oversize_segments),
        num_alloc_retries: stats.num_alloc_retries,
        num_ooms: stats.num_ooms,
        num_sync_all_streams: stats.num_sync_all_streams,
        num_device_alloc: stats.num_device_alloc,
        num_device_free: stats.num_device_free,
        num_oom_rejections: stats.num_oom_rejections,
        max_split_size,
    }
}
