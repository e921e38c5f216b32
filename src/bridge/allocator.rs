//! The allocator as C++ holds it.

use std::sync::Arc;

use super::convert::{block_view, pool_stat, unpack};
use super::ffi::{
    AllocOutcome, BlockView, CacheInfo, CountOutcome, FractionOutcome, LadderCount, MempoolId,
    Outcome, PageView, PoolReserved, Status, StreamToken,
};
use super::outcome::{failure, outcome};
use crate::config::{
    ConfigError, DebugOptions, DefaultEngine, Settings, SkippedRungs, prefetch_from_environment,
};
use crate::device::DeviceAllocator;
use crate::driver::foreign::{DriverTable, ForeignDriver};
use crate::error::AllocError;
use crate::history::{Caller, Context, DropContext, RecordContext};
use crate::ids::{self, StreamKey};
use crate::registry::Registry;

const NO_POOL: MempoolId = MempoolId {
    first: 0,
    second: 0,
};

/// The allocator of a process.
pub struct Allocator {
    pub(super) registry: Registry,
    drop_context: DropContext,
}

/// See the bridge's declaration.
///
/// # Safety
/// The functions in `table` must uphold the contract of `driver_table.h` for as long as the process
/// lives.
pub unsafe fn new_allocator(
    table: &DriverTable,
    common: &str,
    config: &str,
    pad_bytes: usize,
    debug: &str,
) -> Result<Box<Allocator>, AllocError> {
    let settings = settings_of(common, config)?;
    let debug = DebugOptions::parse(debug)?;
    // SAFETY: the caller's promise.
    let driver = unsafe { ForeignDriver::new(*table) };
    let drop_context: DropContext = Arc::new(driver.drop_context());
    let registry = Registry::with_debug(Arc::new(driver), settings, pad_bytes, debug);
    Ok(Box::new(Allocator {
        registry,
        drop_context,
    }))
}

/// The settings of a new allocator.
fn settings_of(common: &str, config: &str) -> Result<Settings, ConfigError> {
    let mut settings = Settings::parse_common(common)?.apply_any(config)?;
    let get = |name: &str| std::env::var(name).ok();
    settings.default_engine = DefaultEngine::from_environment(get)?;
    settings.skipped_rungs = SkippedRungs::from_environment(get)?;
    settings.prefetch = prefetch_from_environment(get)?;
    Ok(settings)
}

pub(super) fn check_config(common: &str, config: &str) -> Outcome {
    outcome(|| {
        settings_of(common, config)?;
        Ok(())
    })
}

pub(super) fn check_debug(words: &str) -> Outcome {
    outcome(|| {
        DebugOptions::parse(words)?;
        Ok(())
    })
}

impl Allocator {
    /// Without contexts.
    #[cfg(test)]
    pub(super) fn over(registry: Registry) -> Self {
        let drop_context = Arc::new(|_| ());
        Self {
            registry,
            drop_context,
        }
    }

    pub(super) fn init(&self, device_count: i32) -> Outcome {
        self.outcome(|| self.registry.init(device_count))
    }

    pub(super) fn device_count(&self) -> i32 {
        self.registry.device_count()
    }

    #[inline]
    pub(super) fn allocate(&self, device: i32, bytes: usize, stream: usize) -> usize {
        // Nothing but an address crosses `quick`: no error is made up for requests that cache serves.
        let stream = StreamKey(stream);
        match self.quick(|| self.registry.allocate_cached(device, bytes, stream)) {
            Ok(Some(addr)) => addr,
            Ok(None) => self.allocate_in(device, bytes, stream.0, NO_POOL, 0).addr,
            Err(error) => {
                failure(error);
                0
            }
        }
    }

    #[inline]
    pub(super) fn deallocate(&self, addr: usize) -> bool {
        match self.quick(|| self.registry.deallocate_plain(addr).then_some(())) {
            Ok(Some(())) => true,
            Ok(None) => self.deallocate_with(addr, 0).status == Status::Ok,
            Err(error) => Self::forgive(error).is_ok(),
        }
    }

    #[inline(never)]
    pub(super) fn allocate_in(
        &self,
        device: i32,
        bytes: usize,
        stream: usize,
        pool: MempoolId,
        context: usize,
    ) -> AllocOutcome {
        let context = Context::adopt(context, &self.drop_context);
        let stream = StreamKey(stream);
        allocated(self.guard(|| {
            self.registry
                .allocate_in(device, bytes, stream, pool.into(), context)
        }))
    }

    pub(super) fn deallocate_with(&self, addr: usize, context: usize) -> Outcome {
        let context = Context::adopt(context, &self.drop_context);
        self.lenient(|| self.registry.deallocate_with(addr, context))
    }

    pub(super) fn record_stream(&self, addr: usize, stream: StreamToken) -> bool {
        let done = self.lenient(|| self.registry.record_stream(addr, stream));
        done.status == Status::Ok
    }

    pub(super) fn erase_stream(&self, addr: usize, stream: StreamToken) -> Outcome {
        self.lenient(|| self.registry.erase_stream(addr, stream))
    }

    pub(super) fn describe_block(&self, addr: usize) -> BlockView {
        block_view(self.guard(|| self.registry.describe_block(addr)))
    }

    pub(super) fn describe_handle(&self, handle: usize) -> BlockView {
        block_view(self.guard(|| {
            let (device, handle) = unpack(handle)?;
            self.registry.describe_handle(device, handle)
        }))
    }

    pub(super) fn erase_stream_by_handle(&self, handle: usize, stream: StreamToken) -> Outcome {
        self.lenient(|| {
            let (device, handle) = unpack(handle)?;
            self.registry.erase_stream_of(device, handle, stream)
        })
    }

    pub(super) fn empty_cache(&self, device: i32, context: usize) -> Outcome {
        let _caller = Caller::enter(Context::adopt(context, &self.drop_context));
        self.outcome(|| self.registry.empty_cache(device, ids::MempoolId::DEFAULT))
    }

    pub(super) fn empty_virtual_cache(&self, device: i32, context: usize) -> Outcome {
        let _caller = Caller::enter(Context::adopt(context, &self.drop_context));
        self.outcome(|| self.registry.device(device)?.empty_virtual_cache())
    }

    pub(super) fn pages_under(&self, addr: usize) -> PageView {
        let found = self.guard(|| {
            let (id, _) = self.registry.describe_block(addr)?;
            let device = self.registry.device(id.0 as i32)?;
            let pages = device.pages_under(addr);
            if pages.is_none() && device.is_asleep_at(addr) {
                return Err(AllocError::Sleep {
                    what: "memory that is asleep can't be shared with other processes, on device",
                    device: id,
                });
            }
            Ok(pages)
        });
        let (status, page_size, addr, handles) = match found {
            Ok(Some(pages)) => (Status::Ok, pages.page_size, pages.addr, pages.handles),
            Ok(None) => (Status::NotSupported, 0, 0, Vec::new()),
            Err(outcome) => (outcome.status, 0, 0, Vec::new()),
        };
        let handles = handles.into_iter().map(|handle| handle.0).collect();
        PageView {
            status,
            page_size,
            addr,
            handles,
        }
    }

    pub(super) fn mark_damaged(&self, device: i32, addr: usize, bytes: usize) -> CountOutcome {
        count(self.guard(|| Ok(self.registry.device(device)?.mark_damaged(addr, bytes))))
    }

    pub(super) fn mark_all_damaged(&self, device: i32) -> Outcome {
        self.outcome(|| {
            self.registry.device(device)?.mark_all_damaged();
            Ok(())
        })
    }

    pub(super) fn is_damaged(&self, addr: usize) -> CountOutcome {
        count(self.guard(|| {
            self.registry
                .devices()
                .find_map(|device| device.is_damaged(addr))
                .map(usize::from)
                .ok_or(AllocError::InvalidPointer { addr })
        }))
    }

    pub(super) fn clear_damaged(&self, addr: usize) -> Outcome {
        self.outcome(|| {
            if self
                .registry
                .devices()
                .any(|device| device.clear_damaged(addr))
            {
                Ok(())
            } else {
                Err(AllocError::InvalidPointer { addr })
            }
        })
    }

    pub(super) fn empty_pool(&self, device: i32, pool: MempoolId, context: usize) -> Outcome {
        let _caller = Caller::enter(Context::adopt(context, &self.drop_context));
        self.lenient(|| self.registry.empty_cache(device, pool.into()))
    }

    pub(super) fn cache_info(&self, device: i32) -> CacheInfo {
        match self.guard(|| Ok(self.registry.device(device)?.cache_info())) {
            Ok((total, largest)) => CacheInfo {
                status: Status::Ok,
                total,
                largest,
            },
            Err(Outcome { status, .. }) => CacheInfo {
                status,
                total: 0,
                largest: 0,
            },
        }
    }

    pub(super) fn drop_pending_events(&self, device: i32) -> Outcome {
        self.outcome(|| {
            self.registry.device(device)?.drop_pending_events();
            Ok(())
        })
    }

    pub(super) fn memory_fraction(&self, device: i32) -> FractionOutcome {
        match self.guard(|| self.registry.device(device)?.memory_fraction()) {
            Ok(value) => FractionOutcome {
                value,
                status: Status::Ok,
                code: 0,
            },
            Err(Outcome { status, code }) => FractionOutcome {
                value: 0.0,
                status,
                code,
            },
        }
    }

    pub(super) fn set_memory_fraction(&self, device: i32, fraction: f64) -> Outcome {
        self.outcome(|| self.registry.device(device)?.set_memory_fraction(fraction))
    }

    pub(super) fn create_or_incref_pool(
        &self,
        device: i32,
        pool: MempoolId,
        external: bool,
    ) -> Outcome {
        self.outcome(|| {
            self.registry
                .device(device)?
                .create_or_incref_pool(pool.into(), external)
        })
    }

    pub(super) fn release_pool(&self, device: i32, pool: MempoolId) -> Outcome {
        self.lenient(|| self.registry.device(device)?.release_pool(pool.into()))
    }

    pub(super) fn pool_use_count(&self, device: i32, pool: MempoolId) -> CountOutcome {
        count(
            self.guard(|| Ok(self.registry.device(device)?.pool_use_count(pool.into())? as usize)),
        )
    }

    pub(super) fn set_use_on_oom(&self, device: i32, pool: MempoolId, on: bool) -> Outcome {
        self.lenient(|| {
            self.registry
                .device(device)?
                .set_use_on_oom(pool.into(), on);
            Ok(())
        })
    }

    pub(super) fn set_no_split(&self, device: i32, pool: MempoolId) -> Outcome {
        self.outcome(|| {
            self.registry.device(device)?.set_no_split(pool.into());
            Ok(())
        })
    }

    pub(super) fn check_pool_live_allocations(
        &self,
        device: i32,
        pool: MempoolId,
        expected: &[usize],
    ) -> CountOutcome {
        count(self.guard(|| {
            let expected = expected.iter().copied().collect();
            let device = self.registry.device(device)?;
            Ok(device
                .check_pool_live_allocations(pool.into(), &expected)?
                .into())
        }))
    }

    pub(super) fn reserved_by_pool(&self, device: i32) -> Vec<PoolReserved> {
        self.guard(|| Ok(self.registry.device(device)?.reserved_by_pool()))
            .unwrap_or_default()
            .into_iter()
            .map(|(pool, stat)| PoolReserved {
                pool: pool.into(),
                bytes: pool_stat(&stat),
            })
            .collect()
    }

    pub(super) fn sleep(&self, device: i32, pool: MempoolId, all: bool) -> CountOutcome {
        let pool = (!all).then(|| pool.into());
        count(self.guard(|| self.registry.sleep(device, pool)))
    }

    pub(super) fn wake_up(&self, device: i32, pool: MempoolId, all: bool) -> CountOutcome {
        let pool = (!all).then(|| pool.into());
        count(self.guard(|| self.registry.wake_up(device, pool)))
    }

    pub(super) fn ladder(&self, device: i32) -> Vec<LadderCount> {
        let ladder = self.guard(|| Ok(self.registry.device(device)?.ladder()));
        let entries = ladder.map(|ladder| ladder.entries());
        let counts = entries.iter().flatten().map(|&(name, count)| LadderCount {
            name: name.to_owned(),
            count,
        });
        counts.collect()
    }

    pub(super) fn mark_capture_begin(&self, device: i32) -> Outcome {
        self.outcome(|| {
            self.registry.device(device)?.mark_capture_begin();
            Ok(())
        })
    }

    pub(super) fn mark_capture_end(&self, device: i32) -> Outcome {
        self.outcome(|| self.registry.device(device)?.mark_capture_end())
    }

    pub(super) fn has_captures_underway(&self, device: i32) -> bool {
        self.guard(|| Ok(self.registry.device(device)?.has_captures_underway()))
            .unwrap_or(false)
    }

    pub(super) fn record_history(&self, enabled: bool, capacity: usize, record: u8) -> Outcome {
        let record = match record {
            0 => RecordContext::Never,
            1 => RecordContext::State,
            2 => RecordContext::Alloc,
            _ => RecordContext::All,
        };
        self.outcome(|| {
            for device in self.registry.devices() {
                device.record_history(enabled, capacity, record);
            }
            Ok(())
        })
    }

    pub(super) fn is_history_enabled(&self, device: i32) -> bool {
        self.guard(|| Ok(self.registry.device(device)?.is_history_enabled()))
            .unwrap_or(false)
    }

    pub(super) fn attach_trace_trackers(&self) {
        self.lenient(|| {
            let devices = self.registry.devices();
            devices.for_each(DeviceAllocator::attach_trace_trackers);
            Ok(())
        });
    }

    pub(super) fn apply_settings(&self, settings: &str) -> Outcome {
        self.outcome(|| self.registry.apply_settings(settings))
    }

    pub(super) fn apply_any_settings(&self, settings: &str) -> Outcome {
        self.outcome(|| self.registry.apply_any_settings(settings))
    }

    pub(super) fn check_memory(&self, device: i32) -> CountOutcome {
        count(self.guard(|| self.registry.check_memory(device)))
    }

    pub(super) fn begin_process_exit(&self) {
        self.lenient(|| {
            self.registry.begin_process_exit();
            Ok(())
        });
    }

    pub(super) fn check_consistency(&self) -> Result<(), AllocError> {
        self.catch(|| self.registry.check_consistency())
    }
}

#[inline]
fn allocated(addr: Result<usize, Outcome>) -> AllocOutcome {
    match addr {
        Ok(addr) => AllocOutcome {
            addr,
            status: Status::Ok,
            code: 0,
        },
        Err(Outcome { status, code }) => AllocOutcome {
            addr: 0,
            status,
            code,
        },
    }
}

fn count(counted: Result<usize, Outcome>) -> CountOutcome {
    match counted {
        Ok(value) => CountOutcome {
            value,
            status: Status::Ok,
            code: 0,
        },
        Err(Outcome { status, code }) => CountOutcome {
            value: 0,
            status,
            code,
        },
    }
}
