//! A replay under way: the events of a trace, one by one, on an allocator and a device of its own.

use std::iter::{Copied, Peekable};
use std::ops::ControlFlow::{self, Break, Continue};
use std::slice::Iter;
use std::sync::Arc;

use ascendcl::model::cost::{CALL_KINDS, CallKind, MEMORY_CALLS};
use npualloc::device::DeviceAllocator;
use npualloc::driver::StreamToken;
use npualloc::error::AllocError;
use npualloc::ids::{DeviceId, MempoolId};

use crate::device::SimDevice;
use crate::marks::Marks;
use crate::pools::Pools;
use crate::replay::{LAG, Observer, Outcome, Setup, TASK_NS};
use crate::trace::{Event, Trace};

/// Added by torch_npu to each request, bytes.
const PAD: usize = 32;

/// The outcome's message where addresses run out before memory does.
const NO_ADDRESSES: &str = "reserve_address failed: no addresses are left for another range";

const WAITS: &[CallKind] = &[
    CallKind::SyncDevice,
    CallKind::SyncEvent,
    CallKind::SyncStream,
];

/// A block of the trace.
struct Block {
    /// 0: it has no memory.
    addr: usize,
    bytes: u64,
    stream: u32,
}

pub(crate) struct Run<'trace> {
    pub allocator: DeviceAllocator,
    device: Arc<SimDevice>,
    /// In the order in which the trace asks for them.
    blocks: Vec<Block>,
    pools: Pools,
    marks: Marks,
    /// Requests that failed in the recorded run, and are still to come.
    failed: Peekable<Copied<Iter<'trace, u32>>>,
    /// The one that ended the recorded run.
    fatal: Option<u32>,
    /// From this event on the program only gives back what it has.
    end: usize,
    outcome: Outcome,
    /// Held memory from which on driver calls count anew as those of growth.
    watermark: u64,
}

impl<'trace> Run<'trace> {
    /// # Errors
    /// Where the settings' memory fraction is none.
    pub fn new(trace: &'trace Trace, setup: &Setup) -> Result<Self, AllocError> {
        let mut config = setup.device.clone();
        config.stream_depth = LAG;
        let device = Arc::new(SimDevice::new(config, trace.streams));
        let settings = setup.settings.clone();
        Ok(Self {
            allocator: DeviceAllocator::new(DeviceId(0), device.clone(), settings, PAD)?,
            device,
            blocks: Vec::with_capacity(trace.blocks as usize),
            pools: Pools::new(&trace.pools),
            marks: Marks::new(trace),
            failed: trace.failed.iter().copied().peekable(),
            fatal: trace.fatal(),
            end: trace.end_of_work(),
            outcome: Outcome::default(),
            watermark: 0,
        })
    }

    /// Replays event `at`. The address that it handed out (0: none), or the end of the replay.
    ///
    /// # Errors
    /// Failures other than want of memory and those of the driver.
    pub fn step(
        &mut self,
        at: usize,
        event: &Event,
        observer: &mut impl Observer,
    ) -> Result<ControlFlow<(), usize>, AllocError> {
        self.marks.before(at, &self.device);
        match *event {
            Event::Alloc {
                bytes,
                stream,
                pool,
            } => {
                let Continue(addr) = self.allocate(at, bytes, stream, pool, observer)? else {
                    return Ok(Break(()));
                };
                if addr != 0 || bytes == 0 {
                    self.device.launch(stream, TASK_NS, addr, bytes);
                }
                self.blocks.push(Block {
                    addr,
                    bytes,
                    stream,
                });
                return Ok(Continue(addr));
            }
            Event::Free { block } => self.free(block),
            Event::Use { block, stream } => self.use_on(stream, block),
            Event::SyncStream { stream } => self.device.sync_stream(stream),
            Event::SyncDevice => self.device.sync_device(),
            Event::WaitStream { stream, back } => {
                self.marks.wait(at - back as usize, stream, &self.device);
            }
            Event::EmptyCache if at >= self.end => {}
            Event::EmptyCache => {
                let emptied = self.allocator.empty_cache(MempoolId::DEFAULT);
                return self.go_on(at, emptied);
            }
            Event::ReleasePool { pool } => {
                let released = self.pools.release(&self.allocator, pool);
                return self.go_on(at, released);
            }
            Event::Mark { .. } => {}
        }
        Ok(Continue(0))
    }

    fn allocate(
        &mut self,
        at: usize,
        bytes: u64,
        stream: u32,
        pool: u16,
        observer: &mut impl Observer,
    ) -> Result<ControlFlow<(), usize>, AllocError> {
        let block = self.blocks.len() as u32;
        let failed = self.failed.next_if_eq(&block).is_some();
        if bytes == 0 {
            return Ok(Continue(0));
        }
        let served = self
            .pools
            .allocate(&self.allocator, pool, bytes as usize, stream);
        match served {
            Ok(addr) => {
                self.outcome.failed_served += usize::from(failed);
                Ok(Continue(addr))
            }
            // The program went on without it.
            Err(AllocError::OutOfMemory(_) | AllocError::Rejected(_))
                if failed && self.fatal != Some(block) =>
            {
                Ok(Continue(0))
            }
            // No capacity helps.
            Err(AllocError::OutOfMemory(report)) if report.addresses_short => {
                self.outcome.driver_failed_at = Some(at);
                self.outcome.message = Some(NO_ADDRESSES.to_owned());
                Ok(Break(()))
            }
            Err(AllocError::OutOfMemory(report) | AllocError::Rejected(report)) => {
                self.outcome.out_of_memory_at = Some(at);
                observer.out_of_memory(at, &report, &self.allocator);
                self.outcome.message = Some(report.message);
                Ok(Break(()))
            }
            Err(error) => self.go_on(at, Err(error)),
        }
    }

    fn free(&mut self, block: u32) {
        let block = &self.blocks[block as usize];
        if block.addr != 0 {
            self.device
                .launch(block.stream, TASK_NS, block.addr, block.bytes);
            let freed = self.allocator.deallocate(block.addr);
            debug_assert!(freed);
        }
    }

    fn use_on(&mut self, stream: u32, block: u32) {
        let block = &self.blocks[block as usize];
        if block.addr == 0 {
            return;
        }
        // A stream may touch memory of another one after that has got it.
        if block.stream != stream {
            self.device.order(block.stream, stream);
        }
        self.device.launch(stream, TASK_NS, block.addr, block.bytes);
        self.allocator.record_stream(block.addr, token(stream));
    }

    /// The replay ends where the driver failed.
    fn go_on(
        &mut self,
        at: usize,
        done: Result<(), AllocError>,
    ) -> Result<ControlFlow<(), usize>, AllocError> {
        let Err(error) = done else {
            return Ok(Continue(0));
        };
        self.outcome.stop(at, error)?;
        Ok(Break(()))
    }

    /// Notes what the device has given, and the driver calls until then.
    pub fn note_held(&mut self) {
        let held = self
            .device
            .with_sim(|sim| sim.config.capacity - sim.device(0).free());
        self.outcome.peak_held = self.outcome.peak_held.max(held);
        if held > self.watermark {
            self.watermark = held + held / 100;
            self.outcome.late_calls = self.device.with_sim(|sim| count(sim, &MEMORY_CALLS).0);
        }
    }

    /// What the replay showed; it took so many nanoseconds an event.
    ///
    /// # Errors
    /// Where the bookkeeping is not consistent.
    pub fn finish(self, real_ns_per_event: f64) -> Result<Outcome, AllocError> {
        let mut outcome = self.outcome;
        outcome.real_ns_per_event = real_ns_per_event;
        self.allocator.check_consistency()?;
        let (stats, _) = self.allocator.stats();
        outcome.peak_active = stats.active_bytes.aggregate().peak as u64;
        outcome.retries = stats.num_alloc_retries as u64;
        self.device.with_sim(|sim| {
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
