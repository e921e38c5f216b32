//! One trace on one allocator. Where a request failed in the recorded run, it is tried; the replay goes on
//! without it, as the program did, unless the run ended there.
//!
//! The traced program's work is modelled so that time matters: each allocation, each use on another
//! stream and each free puts a task on the stream concerned that touches the block, another stream
//! waits for the block's own first, and the host runs at most [`LAG`] tasks ahead of the device. A task
//! takes [`TASK_NS`], so that a wait for the device costs about as much as it would in a device-bound
//! program.

use std::ops::ControlFlow::Continue;
use std::time::Instant;

use ascendcl::Config;
use npualloc::config::Settings;
use npualloc::device::DeviceAllocator;
use npualloc::error::{AllocError, OomReport};
use serde::Serialize;

use crate::run::Run;
use crate::trace::{Event, Trace};

/// Tasks that the host is ahead of the device.
pub const LAG: usize = 256;
/// What a task takes, nanoseconds.
pub const TASK_NS: u64 = 10_000;

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
    /// The event at which memory, or with virtual segments the addresses of a process, ran out, if they did.
    pub out_of_memory_at: Option<usize>,
    /// The event at which the driver failed for another reason, if it did. With other settings, or on another device, it
    /// may not.
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
    pub(crate) fn stop(&mut self, at: usize, error: AllocError) -> Result<(), AllocError> {
        let AllocError::Driver(failure) = error else {
            return Err(error);
        };
        self.driver_failed_at = Some(at);
        self.message = Some(failure.to_string());
        Ok(())
    }
}

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
    let mut run = Run::new(trace, setup)?;
    observer.begin(&run.allocator);
    let begin = Instant::now();
    for (at, event) in trace.events.iter().enumerate() {
        let Continue(addr) = run.step(at, event, observer)? else {
            break;
        };
        observer.after(at, event, addr, &run.allocator);
        if setup.check_every > 0 && at % setup.check_every == 0 {
            run.allocator.check_consistency()?;
        }
        run.note_held();
    }
    let ns = begin.elapsed().as_nanos() as f64 / trace.events.len().max(1) as f64;
    run.finish(ns)
}
