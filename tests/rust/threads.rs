//! Threads on one device: allocating, freeing what others allocated, recording streams, emptying caches,
//! taking snapshots, while a checker recounts everything. The device is nearly full, so that the slow
//! paths, which release the lock in the middle, run all the time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use npualloc::config::Settings;
use npualloc::device::DeviceAllocator;
use npualloc::driver::StreamToken;
use npualloc::driver::fake::FakeDriver;
use npualloc::error::AllocError;
use npualloc::ids::{DeviceId, MempoolId, StreamKey};
use parking_lot::Mutex;

const THREADS: u64 = 4;
const STEPS: usize = 20_000;
const CAPACITY: usize = 256 << 20;
const POOL: MempoolId = MempoolId {
    first: 0,
    second: 5,
};

/// A small generator: the schedule is random anyway.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }
}

struct Shared {
    driver: Arc<FakeDriver>,
    device: DeviceAllocator,
    /// Live blocks of all threads: address → end.
    live: Mutex<BTreeMap<usize, usize>>,
    stop: AtomicBool,
}

impl Shared {
    fn take(&self, random: &mut Random) -> Option<usize> {
        let mut live = self.live.lock();
        let at = random.below(live.len().max(1));
        let addr = *live.keys().nth(at)?;
        live.remove(&addr);
        Some(addr)
    }

    fn step(&self, random: &mut Random) {
        let stream = StreamToken {
            id: random.below(3) as i64,
            device: 0,
            reserved: 0,
        };
        match random.below(20) {
            0..=9 => {
                let largest = [4 << 10, 2 << 20, 30 << 20][random.below(3)];
                let bytes = 1 + random.below(largest);
                let pool = if random.below(4) == 0 {
                    POOL
                } else {
                    MempoolId::DEFAULT
                };
                let key = StreamKey(random.below(2));
                match self.device.allocate_in(bytes, key, pool, None) {
                    Ok(addr) => {
                        let mut live = self.live.lock();
                        let next = live.range(addr..).next();
                        assert!(
                            next.is_none_or(|(start, _)| addr + bytes <= *start),
                            "overlap"
                        );
                        let before = live.range(..=addr).next_back();
                        assert!(before.is_none_or(|(_, end)| *end <= addr), "overlap");
                        live.insert(addr, addr + bytes);
                    }
                    Err(AllocError::OutOfMemory(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            10..=15 => {
                if let Some(addr) = self.take(random) {
                    if random.below(3) == 0 {
                        assert!(self.device.record_stream(addr, stream));
                        self.driver.submit(stream);
                    }
                    assert!(self.device.deallocate(addr));
                }
            }
            16..=17 => self.driver.finish(stream),
            18 => self.device.empty_cache(MempoolId::DEFAULT).expect("works"),
            _ => {
                self.device.snapshot(MempoolId::DEFAULT);
            }
        }
    }
}

fn stress(config: &str) {
    let driver = Arc::new(FakeDriver::new(CAPACITY));
    let settings = Settings::parse(config).expect("valid");
    let device = DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device");
    device.create_or_incref_pool(POOL, false).expect("new");
    let live = Mutex::new(BTreeMap::new());
    let shared = Shared {
        driver,
        device,
        live,
        stop: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|seed| {
                let shared = &shared;
                scope.spawn(move || {
                    let mut random = Random(0x9E37_79B9_7F4A_7C15 + seed);
                    (0..STEPS).for_each(|_| shared.step(&mut random));
                })
            })
            .collect();
        let checker = scope.spawn(|| {
            let mut checks = 0;
            while !shared.stop.load(Ordering::Relaxed) {
                shared.device.check_consistency().expect("consistent");
                checks += 1;
                std::thread::yield_now();
            }
            checks
        });
        for worker in workers {
            worker.join().expect("no panic");
        }
        shared.stop.store(true, Ordering::Relaxed);
        assert!(checker.join().expect("no panic") > 0);
    });
    for addr in std::mem::take(&mut *shared.live.lock()).into_keys() {
        assert!(shared.device.deallocate(addr));
    }
    shared.device.release_pool(POOL).expect("in use");
    shared
        .device
        .empty_cache(MempoolId::DEFAULT)
        .expect("works");
    shared.device.check_consistency().expect("consistent");
    assert_eq!(shared.driver.held(0), (0, 0));
    assert_eq!(shared.driver.held_virtual(0), (0, 0));
}

#[test]
fn threads_keep_every_invariant_with_fixed_segments() {
    stress("");
}

#[test]
fn threads_keep_every_invariant_with_virtual_segments() {
    stress("expandable_segments:True");
}
