//! What the benchmarks do with the core, over the fake driver.

use std::sync::Arc;

use npualloc::config::{DefaultEngine, Settings};
use npualloc::driver::fake::FakeDriver;
use npualloc::ids::{MempoolId, StreamKey};
use npualloc::registry::Registry;

/// The engine of workloads whose name says none.
pub const FIXED: &str = "expandable_segments:False";
/// Room for everything.
const CAPACITY: usize = 1 << 43;
/// What kernels may read past the end of a tensor.
const PAD: usize = 32;
pub const STREAM: StreamKey = StreamKey(0);

/// A generator without state outside: runs are repeatable.
pub struct Random(u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// In [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// An allocator of two devices; work is done on the second one.
pub fn registry(config: &str) -> Registry {
    let mut settings = Settings::parse(config).expect("valid settings");
    // As behind the bridge.
    settings.default_engine = DefaultEngine::Probe;
    let registry = Registry::new(Arc::new(FakeDriver::new(CAPACITY)), settings, PAD);
    registry.init(2).expect("two devices");
    registry
}

/// Something to repeat. A step is two operations: an allocation and a free.
pub trait Workload {
    /// `count` steps.
    fn steps(&mut self, count: usize);
    /// Operations in so many steps.
    fn operations(&self, steps: usize) -> usize {
        2 * steps
    }
    /// The allocator, to check it.
    fn registry(&self) -> &Registry;
}

/// Allocates and frees one size.
pub struct Pair {
    registry: Registry,
    bytes: usize,
}

impl Pair {
    pub fn new(config: &str, bytes: usize) -> Self {
        let registry = registry(config);
        Self { registry, bytes }
    }
}

impl Workload for Pair {
    fn steps(&mut self, count: usize) {
        for _ in 0..count {
            let addr = self.registry.allocate(1, self.bytes, STREAM);
            self.registry
                .deallocate(addr.expect("memory"))
                .expect("live");
        }
    }

    fn registry(&self) -> &Registry {
        &self.registry
    }
}

/// Replaces one of the live blocks by one of another size. Every octave of sizes is as likely.
pub struct Churn {
    registry: Registry,
    live: Vec<usize>,
    requests: Vec<(u32, u32)>,
    next: usize,
}

impl Churn {
    pub fn new(config: &str, slots: usize, largest: usize) -> Self {
        let registry = registry(config);
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        let octaves = (largest as f64 / 512.0).log2();
        let requests: Vec<_> = (0..1 << 16)
            .map(|_| {
                let bytes = 512.0 * (octaves * random.unit()).exp2();
                ((random.next() % slots as u64) as u32, bytes as u32)
            })
            .collect();
        let live = (0..slots)
            .map(|slot| {
                let bytes = requests[slot % requests.len()].1 as usize;
                registry.allocate(1, bytes, STREAM).expect("memory")
            })
            .collect();
        Self {
            registry,
            live,
            requests,
            next: 0,
        }
    }
}

impl Workload for Churn {
    fn steps(&mut self, count: usize) {
        for _ in 0..count {
            let (slot, bytes) = self.requests[self.next % self.requests.len()];
            self.next += 1;
            let slot = &mut self.live[slot as usize];
            self.registry.deallocate(*slot).expect("live");
            *slot = self
                .registry
                .allocate(1, bytes as usize, STREAM)
                .expect("memory");
        }
    }

    fn registry(&self) -> &Registry {
        &self.registry
    }
}

/// Blocks that [`Growing`] holds at the most.
const FULL: usize = 1 << 17;

/// Allocates one size and frees nothing until there are [`FULL`] blocks; then everything goes back to the
/// driver. Most of it is the way through the driver.
pub struct Growing {
    registry: Registry,
    bytes: usize,
    live: Vec<usize>,
}

impl Growing {
    pub fn new(config: &str, bytes: usize) -> Self {
        Self {
            registry: registry(config),
            bytes,
            live: Vec::with_capacity(FULL),
        }
    }
}

impl Workload for Growing {
    fn steps(&mut self, count: usize) {
        for _ in 0..2 * count {
            if self.live.len() == FULL {
                for addr in self.live.drain(..) {
                    self.registry.deallocate(addr).expect("live");
                }
                let emptied = self.registry.empty_cache(1, MempoolId::DEFAULT);
                emptied.expect("memory goes back");
            }
            let addr = self.registry.allocate(1, self.bytes, STREAM);
            self.live.push(addr.expect("memory"));
        }
    }

    fn registry(&self) -> &Registry {
        &self.registry
    }
}

/// Makes a workload.
pub type Make = fn(Option<&str>) -> Box<dyn Workload>;

/// Every workload by name.
pub fn all() -> Vec<(&'static str, Make)> {
    vec![
        ("one size, 512 B", |config| {
            Box::new(Pair::new(config.unwrap_or(FIXED), 512))
        }),
        ("one size, 8 MB", |config| {
            Box::new(Pair::new(config.unwrap_or(FIXED), 8 << 20))
        }),
        ("random to 2 MB, 100 live", |config| {
            Box::new(Churn::new(config.unwrap_or(FIXED), 100, 2 << 20))
        }),
        ("random to 2 MB, 1,000 live", |config| {
            Box::new(Churn::new(config.unwrap_or(FIXED), 1000, 2 << 20))
        }),
        ("random to 2 MB, 100,000 live", |config| {
            Box::new(Churn::new(config.unwrap_or(FIXED), 100_000, 2 << 20))
        }),
        ("random to 64 MB, 1,000 live", |config| {
            Box::new(Churn::new(config.unwrap_or(FIXED), 1000, 64 << 20))
        }),
        ("random to 2 MB, 1,000 live, expandable", |config| {
            Box::new(Churn::new(
                config.unwrap_or("expandable_segments:True"),
                1000,
                2 << 20,
            ))
        }),
        ("random to 2 MB, 1,000 live, no settings", |config| {
            Box::new(Churn::new(config.unwrap_or(""), 1000, 2 << 20))
        }),
        ("random to 2 MB, 100,000 live, no settings", |config| {
            Box::new(Churn::new(config.unwrap_or(""), 100_000, 2 << 20))
        }),
        ("random to 256 MB, 1,000 live, no settings", |config| {
            Box::new(Churn::new(config.unwrap_or(""), 1000, 256 << 20))
        }),
        ("random to 64 MB, 10,000 live, expandable", |config| {
            Box::new(Churn::new(
                config.unwrap_or("expandable_segments:True"),
                10_000,
                64 << 20,
            ))
        }),
        ("growing by 8 MB, expandable", |config| {
            Box::new(Growing::new(
                config.unwrap_or("expandable_segments:True"),
                8 << 20,
            ))
        }),
    ]
}
