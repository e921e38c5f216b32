//! One trace on one allocator. Where a request failed in the recorded run, it is tried; the replay goes on
//! without it, as the program did, unless the run ended there.
//!
//! The traced program's work is modelled so that time matters: each allocation, each use on another
//! stream and each free puts a task on the stream concerned that touches the block, another stream
//! waits for the block's own first, and the host runs at most [`LAG`] tasks ahead of the device. A task
//! takes [`TASK_NS`], so that a wait for the device costs about as much as it would in a device-bound
//! program.

use std::sync::Arc;
use std::time::Instant;

use ascendcl::Config;
use ascendcl::model::cost::{CALL_KINDS, CallKind, MEMORY_CALLS};
use npualloc::config::Settings;
use npualloc::device::DeviceAllocator;
use npualloc::driver::StreamToken;
use npualloc::error::{AllocError, OomReport};
use npualloc::ids::{DeviceId, MempoolId};
use serde::Serialize;

use crate::device::SimDevice;
use crate::marks::Marks;
use crate::pools::Pools;
use crate::trace::{Event, Trace};

/// Tasks that the host is ahead of the device.
pub const LAG: usize = 256;
/// What a task takes, nanoseconds.
pub const TASK_NS: u64 = 10_000;
/// Added by torch_npu to each request, bytes.
const PAD: usize = 32;

/// Watches a replay. Every method has an empty default.
pub trait Observer {
    /// The allocator is there, and nothing has happened yet.
    fn begin(&mut self, allocator: &DeviceAllocator) {
        let _ = allocator;
    }

    /// An event has been replayed. `addr` is the address handed out by an allocation (0 for 0 bytes),
    /// else 0.
    fn after(&mut self, at: usize, event: &Event, addr: usize, allocator: &DeviceAllocator) {
        let _ = (at, event, addr, allocator);
    }

    /// The allocation at event `at` failed; nothing follows.
    fn out_of_memory(&mut self, at: usize, report: &OomReport, allocator: &DeviceAllocator) {
        let _ = (at, report, allocator);
    }
}

/// Watches nothing.
impl Observer for () {}

/// What a replay showed. Bytes and nanoseconds.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Outcome {
    /// The event at which memory ran out, if it did.
    pub out_of_memory_at: Option<usize>,
    /// The event at which the driver failed for another reason, if it did: it has no addresses left, say. With other
    /// settings, or on another device, it may not.
    pub driver_failed_at: Option<usize>,
    /// The message of either failure.
    pub message: Option<String>,
    /// Requests that failed in the recorded run and were served here.
    pub failed_served: usize,
    /// The most device memory held at once, by the device's own count.
    pub peak_held: u64,
    /// The most bytes in live blocks and blocks that wait for other streams, after rounding.
    pub peak_active: u64,
    /// Requests that were tried again after cached memory had been given back.
    pub retries: u64,
    /// Calls that obtain, return, map or unmap memory.
    pub memory_calls: u64,
    /// Their virtual time.
    pub memory_ns: u64,
    /// Device synchronisations by the allocator.
    pub device_syncs: u64,
    /// Virtual time that the allocator made the host wait for the device.
    pub wait_ns: u64,
    /// Memory calls after the first growth: since the peak of held memory was first reached to 99 %.
    pub late_calls: u64,
    /// Counts by kind of call.
    pub calls: Vec<(&'static str, u64)>,
    /// Hazards seen by the device.
    pub hazards: u64,
    /// Real time of the allocator's and the device's code, an event.
    pub real_ns_per_event: f64,
}

impl Outcome {
    /// Whether every event was replayed.
    pub fn completes(&self) -> bool {
        self.out_of_memory_at.is_none() && self.driver_failed_at.is_none()
    }

    /// The replay ends at event `at`. What is not the driver's failure is none of the outcome.
    fn stop(&mut self, at: usize, error: AllocError) -> Result<(), AllocError> {
        let AllocError::Driver(failure) = error else {
            return Err(error);
        };
        self.driver_failed_at = Some(at);
        self.message = Some(failure.to_string());
        Ok(())
    }
}

const WAITS: &[CallKind] = &[
    CallKind::SyncDevice,
    CallKind::SyncEvent,
    CallKind::SyncStream,
];

/// How to replay.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The device.
    pub device: Config,
    /// The allocator's settings.
    pub settings: Settings,
    /// Recount all bookkeeping every so many events; 0 = never.
    pub check_every: usize,
}

/// Replays a trace from an empty allocator.
///
/// # Errors
/// Failures other than want of memory and those of the driver: they are part of the outcome.
pub fn replay(trace: &Trace, setup: &Setup) -> Result<Outcome, AllocError> {
    replay_observed(trace, setup, &mut ())
}

/// As [`replay`], with somebody watching.
///
/// # Errors
/// As [`replay`].
pub fn replay_observed(
    trace: &Trace,
    setup: &Setup,
    observer: &mut impl Observer,
) -> Result<Outcome, AllocError> {
    let mut config = setup.device.clone();
    config.stream_depth = LAG;
    let device = Arc::new(SimDevice::new(config, trace.streams));
    let allocator = DeviceAllocator::new(DeviceId(0), device.clone(), setup.settings.clone(), PAD)?;
    let mut blocks: Vec<(usize, u64, u32)> = Vec::with_capacity(trace.blocks as usize);
    let mut pools = Pools::new(&trace.pools);
    let mut marks = Marks::new(trace);
    let mut outcome = Outcome::default();
    let mut failed = trace.failed.iter().copied().peekable();
    let (fatal, end) = (trace.fatal(), trace.end_of_work());
    let mut watermark = 0;
    observer.begin(&allocator);
    let begin = Instant::now();
    for (at, event) in trace.events.iter().enumerate() {
        let mut given = 0;
        marks.before(at, &device);
        match *event {
            Event::Alloc {
                bytes,
                stream,
                pool,
            } => {
                let block = blocks.len() as u32;
                let failed = failed.next_if_eq(&block).is_some();
                let addr = if bytes == 0 {
                    0
                } else {
                    match pools.allocate(&allocator, pool, bytes as usize, stream) {
                        Ok(addr) => {
                            outcome.failed_served += usize::from(failed);
                            addr
                        }
                        // The program went on without it.
                        Err(AllocError::OutOfMemory(_) | AllocError::Rejected(_))
                            if failed && fatal != Some(block) =>
                        {
                            0
                        }
                        Err(AllocError::OutOfMemory(report) | AllocError::Rejected(report)) => {
                            outcome.out_of_memory_at = Some(at);
                            observer.out_of_memory(at, &report, &allocator);
                            outcome.message = Some(report.message);
                            break;
                        }
                        Err(error) => {
                            outcome.stop(at, error)?;
                            break;
                        }
                    }
                };
                if addr != 0 || bytes == 0 {
                    device.launch(stream, TASK_NS, addr, bytes);
                }
                blocks.push((addr, bytes, stream));
                given = addr;
            }
            Event::Free { block } => {
                let (addr, bytes, stream) = blocks[block as usize];
                if addr != 0 {
                    device.launch(stream, TASK_NS, addr, bytes);
                    let freed = allocator.deallocate(addr);
                    debug_assert!(freed);
                }
            }
            Event::Use { block, stream } => {
                let (addr, bytes, own) = blocks[block as usize];
                if addr != 0 {
                    // A stream may touch memory of another one after that has got it.
                    if own != stream {
                        device.order(own, stream);
                    }
                    device.launch(stream, TASK_NS, addr, bytes);
                    allocator.record_stream(addr, token(stream));
                }
            }
            Event::SyncStream { stream } => device.sync_stream(stream),
            Event::SyncDevice => device.sync_device(),
            Event::WaitStream { stream, back } => marks.wait(at - back as usize, stream, &device),
            Event::EmptyCache if at >= end => {}
            Event::EmptyCache => {
                if let Err(error) = allocator.empty_cache(MempoolId::DEFAULT) {
                    outcome.stop(at, error)?;
                    break;
                }
            }
            Event::ReleasePool { pool } => {
                if let Err(error) = pools.release(&allocator, pool) {
                    outcome.stop(at, error)?;
                    break;
                }
            }
            Event::Mark { .. } => {}
        }
        observer.after(at, event, given, &allocator);
        if setup.check_every > 0 && at % setup.check_every == 0 {
            allocator.check_consistency()?;
        }
        let held = device.with_sim(|sim| sim.config.capacity - sim.device(0).free());
        if held > outcome.peak_held {
            outcome.peak_held = held;
            if held > watermark {
                watermark = held + held / 100;
                outcome.late_calls = device.with_sim(|sim| count(sim, &MEMORY_CALLS).0);
            }
        }
    }
    outcome.real_ns_per_event =
        begin.elapsed().as_nanos() as f64 / trace.events.len().max(1) as f64;
    allocator.check_consistency()?;
    let (stats, _) = allocator.stats();
    outcome.peak_active = stats.active_bytes.aggregate().peak as u64;
    outcome.retries = stats.num_alloc_retries as u64;
    device.with_sim(|sim| {
        let (calls, ns) = count(sim, &MEMORY_CALLS);
        outcome.memory_calls = calls;
        outcome.memory_ns = ns;
        outcome.late_calls = calls - outcome.late_calls;
        let ledger = &sim.device(0).ledger;
        outcome.device_syncs = ledger.call(CallKind::SyncDevice).count;
        outcome.wait_ns = WAITS.iter().map(|kind| ledger.call(*kind).wait_ns).sum();
        outcome.hazards = ledger.hazard_count;
        outcome.calls = CALL_KINDS
            .iter()
            .map(|kind| (kind.name(), ledger.call(*kind).count))
            .filter(|(_, count)| *count > 0)
            .collect();
    });
    Ok(outcome)
}

fn count(sim: &mut ascendcl::Sim, kinds: &[CallKind]) -> (u64, u64) {
    let ledger = &sim.device(0).ledger;
    kinds.iter().fold((0, 0), |(count, ns), kind| {
        let stat = ledger.call(*kind);
        (count + stat.count, ns + stat.ns)
    })
}

fn token(stream: u32) -> StreamToken {
    StreamToken {
        id: stream.into(),
        device: 0,
        reserved: 0,
    }
}
