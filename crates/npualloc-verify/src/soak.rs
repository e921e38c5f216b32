//! Hours of training in minutes: steps of a made-up mixed workload, watched for drift.
//!
//! A step allocates activations whose size depends on a sequence length that changes from step to step,
//! temporary buffers, gradients that a second stream reduces, an optimiser's scratch; every so many steps
//! there is an evaluation with other sizes, a checkpoint that copies all weights, `empty_cache`, a graph
//! pool that is filled and freed. The same lengths come again after every [`PERIOD`] steps, so that
//! whatever is larger after the n-th period than after the second is a leak.

use std::sync::Arc;
use std::time::{Duration, Instant};

use npualloc::device::DeviceAllocator;
use npualloc::driver::fake::FakeDriver;
use npualloc::ids::{MempoolId, StreamKey};
use npualloc::registry::Registry;

use crate::Random;
use crate::op::settings;
use crate::watch::token;

/// Steps after which the lengths come again.
pub const PERIOD: u64 = 10_000;
/// What a step takes on a device, for the count of hours.
pub const STEP_SECONDS: f64 = 0.25;
const CAPACITY: usize = 64 << 30;
const LAYERS: usize = 12;
const COMPUTE: StreamKey = StreamKey(0);
const GRAPH_POOL: MempoolId = MempoolId {
    first: 1,
    second: 0,
};

/// State after a period.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Steps done.
    pub steps: u64,
    /// Bytes held from the driver.
    pub reserved: usize,
    /// Blocks that the allocator keeps books of.
    pub blocks: usize,
    /// Bytes of the allocator's own bookkeeping.
    pub bookkeeping: usize,
    /// Resident memory of this process, bytes; 0 where the system doesn't tell.
    pub resident: usize,
    /// Allocations and frees in the period.
    pub operations: u64,
    /// Driver calls in the period.
    pub driver_calls: u64,
    /// Real time of an operation in the period: the mean, nanoseconds.
    pub nanoseconds: f64,
}

struct Soak {
    driver: Arc<FakeDriver>,
    registry: Registry,
    weights: Vec<usize>,
    operations: u64,
}

/// Trains for `steps` (rounded up to whole periods, three at least) and reports after each period. No settings mean
/// what they mean to users: the driver decides between the engines.
///
/// # Errors
/// Settings that are refused; or the first quantity that drifted: reserved memory, blocks, bookkeeping or resident memory that
/// is larger at the end than after the second period. Latency is the caller's to judge: it depends on the machine.
pub fn soak(
    steps: u64,
    config: &str,
    mut report: impl FnMut(&Sample),
) -> Result<Vec<Sample>, String> {
    let mut soak = Soak::new(config)?;
    let mut samples = Vec::new();
    let periods = steps.div_ceil(PERIOD).max(3);
    for period in 1..=periods {
        let calls = soak.driver.total_calls();
        let (operations, took) = soak.period();
        let sample = Sample {
            steps: period * PERIOD,
            reserved: soak.driver.held(0).1,
            blocks: soak.device().block_count(),
            bookkeeping: soak.device().bookkeeping_bytes(),
            resident: resident_bytes(),
            operations,
            driver_calls: soak.driver.total_calls() - calls,
            nanoseconds: took.as_nanos() as f64 / operations as f64,
        };
        report(&sample);
        samples.push(sample);
        soak.registry
            .check_consistency()
            .map_err(|error| error.to_string())?;
    }
    soak.finish()?;
    drift(&samples)?;
    Ok(samples)
}

/// Whether anything grew after the second period. Bookkeeping may, by 1/256: it has room for the most blocks that there ever were
/// at a time, and where memory moves no period is quite like another. Resident memory may by 4 MiB: the
/// system gives the process memory in pieces.
fn drift(samples: &[Sample]) -> Result<(), String> {
    let (Some(early), Some(last)) = (samples.get(1), samples.last()) else {
        return Err("too few periods".into());
    };
    let checks = [
        ("reserved memory", early.reserved, last.reserved, 0),
        ("blocks", early.blocks, last.blocks, 0),
        (
            "bookkeeping",
            early.bookkeeping,
            last.bookkeeping,
            early.bookkeeping / 256,
        ),
        ("resident memory", early.resident, last.resident, 4 << 20),
    ];
    for (what, early, last, allowed) in checks {
        if last > early + allowed {
            return Err(format!("{what} grew from {early} to {last}"));
        }
    }
    Ok(())
}

fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}

impl Soak {
    fn new(config: &str) -> Result<Self, String> {
        let settings = settings(config, true).map_err(|error| error.to_string())?;
        let driver = Arc::new(FakeDriver::new(CAPACITY));
        let registry = Registry::new(driver.clone(), settings, 32);
        registry.init(1).expect("a device");
        let mut soak = Self {
            driver,
            registry,
            weights: Vec::new(),
            operations: 0,
        };
        for layer in 0..LAYERS {
            let weight = soak.allocate((24 + layer) << 20);
            soak.weights.push(weight);
        }
        Ok(soak)
    }

    fn device(&self) -> &DeviceAllocator {
        self.registry.device(0).expect("there")
    }

    fn allocate(&mut self, bytes: usize) -> usize {
        self.operations += 1;
        self.registry.allocate(0, bytes, COMPUTE).expect("memory")
    }

    fn free(&mut self, addr: usize) {
        self.operations += 1;
        self.registry.deallocate(addr).expect("live");
    }

    fn period(&mut self) -> (u64, Duration) {
        let before = self.operations;
        let mut random = Random::new(1);
        let begin = Instant::now();
        for step in 0..PERIOD {
            let tokens = 64 + random.below(1985);
            self.train(&mut random, tokens);
            match step % 1000 {
                250 => self.evaluate(&mut random),
                500 => self.copy_weights(),
                750 => self.graph(&mut random),
                999 if step + 1 == PERIOD => {
                    let device = self.device();
                    device.empty_cache(MempoolId::DEFAULT).expect("works");
                }
                _ => {}
            }
        }
        (self.operations - before, begin.elapsed())
    }

    fn train(&mut self, random: &mut Random, tokens: usize) {
        let side = token(0, 1);
        let mut kept = Vec::with_capacity(3 * LAYERS);
        for _ in 0..LAYERS {
            for width in [2048, 5504, 2048] {
                kept.push(self.allocate(tokens * width));
                let scratch = self.allocate(1 + random.below(1 << 20));
                self.free(scratch);
            }
        }
        for _ in 0..LAYERS {
            let gradient = self.allocate((1 + random.below(8)) << 20);
            for _ in 0..3 {
                let activation = kept.pop().expect("one for each");
                self.free(activation);
            }
            self.registry.record_stream(gradient, side).expect("live");
            self.driver.submit(side);
            self.free(gradient);
        }
        self.driver.finish(side);
        for _ in 0..LAYERS {
            let scratch = self.allocate(512 + random.below(64 << 10));
            self.free(scratch);
        }
    }

    fn evaluate(&mut self, random: &mut Random) {
        let mut results = Vec::new();
        for _ in 0..50 {
            results.push(self.allocate(1 + random.below(96 << 20)));
            if results.len() > 8 {
                let at = random.below(results.len());
                let result = results.swap_remove(at);
                self.free(result);
            }
        }
        for result in results {
            self.free(result);
        }
    }

    fn copy_weights(&mut self) {
        let copies: Vec<_> = (0..LAYERS)
            .map(|layer| self.allocate((24 + layer) << 20))
            .collect();
        for copy in copies {
            self.free(copy);
        }
    }

    fn graph(&mut self, random: &mut Random) {
        self.device()
            .create_or_incref_pool(GRAPH_POOL, false)
            .expect("no longer there");
        let blocks: Vec<_> = (0..40)
            .map(|_| {
                let bytes = 1 + random.below(24 << 20);
                self.operations += 1;
                let addr = self
                    .registry
                    .allocate_in(0, bytes, StreamKey(2), GRAPH_POOL, None);
                addr.expect("memory")
            })
            .collect();
        for block in blocks {
            self.free(block);
        }
        let device = self.device();
        device.release_pool(GRAPH_POOL).expect("in use");
        device.empty_cache(GRAPH_POOL).expect("works");
    }

    fn finish(mut self) -> Result<(), String> {
        for weight in std::mem::take(&mut self.weights) {
            self.free(weight);
        }
        self.device()
            .empty_cache(MempoolId::DEFAULT)
            .map_err(|error| error.to_string())?;
        let held = (self.driver.held(0), self.driver.held_virtual(0));
        if held == ((0, 0), (0, 0)) {
            Ok(())
        } else {
            Err(format!("left at the end: {held:?}"))
        }
    }
}
