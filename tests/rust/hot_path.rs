//! What an allocation from cache and a free must not do: allocate host memory, call the driver. And what
//! the bookkeeping may cost.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use npualloc::config::{DefaultEngine, Settings};
use npualloc::driver::StreamToken;
use npualloc::driver::fake::FakeDriver;
use npualloc::ids::StreamKey;
use npualloc::registry::Registry;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the calling thread's calls.
struct Counting;

// SAFETY: passes everything on to the system's allocator; the counter needs no memory itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }

    /// Every octave from 512 bytes up is as likely.
    fn bytes(&mut self, octaves: usize) -> usize {
        let low = 512 << self.below(octaves);
        low + self.below(low)
    }
}

fn registry(config: &str) -> (Arc<FakeDriver>, Registry) {
    let driver = Arc::new(FakeDriver::new(1 << 44));
    let settings = Settings::parse(config).expect("valid");
    let registry = Registry::new(driver.clone(), settings, 32);
    registry.init(2).expect("two devices");
    (driver, registry)
}

struct Churn {
    registry: Registry,
    random: Random,
    live: Vec<usize>,
    octaves: usize,
}

impl Churn {
    fn new(registry: Registry, slots: usize, octaves: usize) -> Self {
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        let live = (0..slots)
            .map(|_| {
                let bytes = random.bytes(octaves);
                registry.allocate(1, bytes, StreamKey(7)).expect("memory")
            })
            .collect();
        Self {
            registry,
            random,
            live,
            octaves,
        }
    }

    fn steps(&mut self, count: usize) {
        for _ in 0..count {
            let slot = self.random.below(self.live.len());
            self.registry.deallocate(self.live[slot]).expect("live");
            let bytes = self.random.bytes(self.octaves);
            let addr = self.registry.allocate(1, bytes, StreamKey(7));
            self.live[slot] = addr.expect("memory");
        }
    }
}

/// Driver calls are counted because growth may still happen; steps that made none must not have allocated
/// host memory either, but for `allowed` of them.
fn assert_quiet(config: &str, octaves: usize, allowed: usize) {
    let (driver, registry) = registry(config);
    assert_quiet_on(&driver, registry, octaves, allowed);
}

fn assert_quiet_on(driver: &FakeDriver, registry: Registry, octaves: usize, allowed: usize) {
    let mut churn = Churn::new(registry, 300, octaves);
    churn.steps(200_000);
    churn.registry.check_consistency().expect("consistent");
    let (mut quiet, mut loud) = (0, 0);
    for _ in 0..20_000 {
        let (calls, allocations) = (driver.total_calls(), CALLS.get());
        churn.steps(1);
        if driver.total_calls() == calls {
            quiet += 1;
            loud += usize::from(CALLS.get() != allocations);
        }
    }
    assert!(loud <= allowed, "{loud} steps allocated host memory");
    assert!(
        quiet > 19_000,
        "only {quiet} of 20,000 steps were served from cache"
    );
}

/// Free memory lies in blocks above 2 MiB too, whose bins need room when they have a second size first.
#[test]
fn fixed_segments_small_sizes() {
    assert_quiet("", 12, 20);
}

#[test]
fn virtual_segments_small_sizes() {
    assert_quiet("expandable_segments:True", 12, 100);
}

/// A thread's lease has all the room that it needs, once it had a first one.
#[test]
fn leases_of_small_sizes() {
    let driver = Arc::new(FakeDriver::new(1 << 44));
    let mut settings = Settings::parse("").expect("valid");
    settings.default_engine = DefaultEngine::Probe;
    let registry = Registry::new(driver.clone(), settings, 32);
    registry.init(2).expect("two devices");
    registry.device(1).expect("there").assume_crowd();
    assert_quiet_on(&driver, registry, 12, 100);
}

/// Above 2 MiB a bin needs room when more sizes than ever before are free in it; it keeps its room.
#[test]
fn one_large_size() {
    let (driver, registry) = registry("");
    for _ in 0..2 {
        let addr = registry
            .allocate(1, 512 << 20, StreamKey(7))
            .expect("memory");
        registry.deallocate(addr).expect("live");
    }
    let (calls, allocations) = (driver.total_calls(), CALLS.get());
    for _ in 0..1000 {
        let addr = registry
            .allocate(1, 512 << 20, StreamKey(7))
            .expect("memory");
        registry.deallocate(addr).expect("live");
    }
    assert_eq!((driver.total_calls(), CALLS.get()), (calls, allocations));
}

/// With uses on another stream the driver is asked, but host memory is not allocated once warm.
#[test]
fn uses_on_another_stream() {
    let (driver, registry) = registry("");
    let side = StreamToken {
        id: 1,
        device: 1,
        reserved: 0,
    };
    let step = || {
        let addr = registry.allocate(1, 4096, StreamKey(7)).expect("memory");
        registry.record_stream(addr, side).expect("live");
        registry.deallocate(addr).expect("live");
    };
    (0..100).for_each(|_| step());
    assert!(driver.calls("event_create") < 100, "events are used again");
    let (records, allocations) = (driver.calls("event_record"), CALLS.get());
    (0..100).for_each(|_| step());
    assert_eq!(CALLS.get(), allocations);
    // Sixteen frees have an event in common, and there is no event that nobody asks for.
    let recorded = driver.calls("event_record") - records;
    assert!((6..=7).contains(&recorded), "{recorded} events");
    registry.check_consistency().expect("consistent");
}

#[test]
fn bookkeeping_is_at_most_128_bytes_for_each_live_block() {
    let (_, registry) = registry("");
    let slots = 100_000;
    let mut churn = Churn::new(registry, slots, 12);
    churn.steps(4 * slots);
    let device = churn.registry.device(1).expect("there");
    let bytes = device.bookkeeping_bytes();
    assert!(bytes <= 128 * slots, "{} bytes a block", bytes / slots);
    // And not all of it is left out.
    assert!(bytes >= 64 * slots, "{} bytes a block", bytes / slots);
}
