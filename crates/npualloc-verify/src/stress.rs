//! Threads on one device, with memory so short that the slow paths, which release the lock in the middle,
//! run all the time: allocating, freeing what others allocated, recording streams, emptying caches, taking
//! snapshots, changing settings, switching history on and off. Contexts (the client's stacks) take a lock
//! when they are dropped, as Python's do, while other threads hold that lock and call the allocator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use npualloc::driver::fake::FakeDriver;
use npualloc::error::AllocError;
use npualloc::history::{Context, DropContext, RecordContext};
use npualloc::ids::{MempoolId, StreamKey};
use npualloc::registry::Registry;
use parking_lot::{Mutex, ReentrantMutex};

use crate::Random;
use crate::op::{CHANGES, settings};
use crate::watch::token;

const CAPACITY: usize = 256 << 20;
const POOL: MempoolId = MempoolId {
    first: 0,
    second: 1,
};

struct Shared {
    driver: Arc<FakeDriver>,
    registry: Registry,
    /// Live blocks of all threads: start → end.
    live: Mutex<BTreeMap<usize, usize>>,
    /// Stands for the interpreter's lock, which a thread can take again.
    interpreter: Arc<ReentrantMutex<()>>,
    dropped: Arc<AtomicU64>,
    stop: AtomicBool,
}

/// Settings, where none mean what they mean to users: the driver decides. And whether a handle can be mapped at two
/// addresses.
pub const KINDS: [(&str, bool); 4] = [
    ("expandable_segments:False", true),
    ("expandable_segments:True", true),
    ("expandable_segments:True", false),
    ("", true),
];

/// Runs `threads` threads of `steps` steps each, and one that recounts all bookkeeping meanwhile. Returns
/// the number of recounts.
///
/// # Panics
/// When a rule is broken.
pub fn stress((config, two_addresses): (&str, bool), threads: u64, steps: usize) -> u64 {
    let driver = Arc::new(FakeDriver::new(CAPACITY));
    if !two_addresses {
        driver.refuse_aliasing();
    }
    let mut settings = settings(config, true).expect("valid settings");
    // With virtual segments one more thread obtains memory ahead.
    settings.prefetch = 32 << 20;
    let registry = Registry::new(driver.clone(), settings, 32);
    registry.init(1).expect("a device");
    let device = registry.device(0).expect("there");
    device.create_or_incref_pool(POOL, false).expect("new");
    let shared = Shared {
        driver,
        registry,
        live: Mutex::default(),
        interpreter: Arc::new(ReentrantMutex::new(())),
        dropped: Arc::default(),
        stop: AtomicBool::new(false),
    };
    let recounts = std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=threads)
            .map(|seed| {
                let shared = &shared;
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    (0..steps).for_each(|_| shared.step(&mut random));
                })
            })
            .collect();
        let checker = scope.spawn(|| {
            let mut recounts = 0;
            while !shared.stop.load(Ordering::Relaxed) {
                shared.registry.check_consistency().expect("consistent");
                recounts += 1;
                std::thread::yield_now();
            }
            recounts
        });
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        // Also where one panicked: the scope waits for all.
        shared.stop.store(true, Ordering::Relaxed);
        let recounts = checker.join().expect("no panic");
        for worker in ended {
            worker.expect("no panic");
        }
        recounts
    });
    shared.finish();
    recounts
}

impl Shared {
    fn context(&self) -> Option<Arc<Context>> {
        let (interpreter, dropped) = (self.interpreter.clone(), self.dropped.clone());
        let drop: DropContext = Arc::new(move |_| {
            let _held = interpreter.lock();
            dropped.fetch_add(1, Ordering::Relaxed);
        });
        Context::adopt(1, &drop)
    }

    fn take(&self, random: &mut Random) -> Option<usize> {
        let mut live = self.live.lock();
        let at = random.below(live.len().max(1));
        let addr = *live.keys().nth(at)?;
        live.remove(&addr);
        Some(addr)
    }

    fn allocate(&self, random: &mut Random) {
        let largest = [4 << 10, 2 << 20, 30 << 20][random.below(3)];
        let bytes = 1 + random.below(largest);
        let stream = StreamKey(random.below(2));
        let device = self.registry.device(0).expect("there");
        let outcome = match random.below(3) {
            0 => {
                let pool = [MempoolId::DEFAULT, POOL][random.below(2)];
                device.allocate_in(bytes, stream, pool, self.context())
            }
            1 => {
                // A caller that holds the interpreter's lock.
                let _held = self.interpreter.lock();
                self.registry.allocate(0, bytes, stream)
            }
            _ => self.registry.allocate(0, bytes, stream),
        };
        match outcome {
            Ok(addr) => {
                let mut live = self.live.lock();
                let before = live.range(..addr + bytes).next_back();
                assert!(before.is_none_or(|(_, end)| *end <= addr), "blocks overlap");
                live.insert(addr, addr + bytes);
            }
            Err(AllocError::OutOfMemory(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn step(&self, random: &mut Random) {
        let device = self.registry.device(0).expect("there");
        let stream = token(0, random.below(3) as u8);
        match random.below(24) {
            0..=9 => self.allocate(random),
            10..=16 => {
                if let Some(addr) = self.take(random) {
                    if random.below(3) == 0 {
                        self.registry.record_stream(addr, stream).expect("live");
                        self.driver.submit(stream);
                    }
                    self.registry.deallocate(addr).expect("live");
                }
            }
            17..=18 => self.driver.finish(stream),
            19 => device.empty_cache(MempoolId::DEFAULT).expect("works"),
            20 => {
                device.snapshot(MempoolId::DEFAULT);
            }
            21 => {
                let change = CHANGES[random.below(CHANGES.len())];
                let _ = self.registry.apply_settings(change);
            }
            22 => device.record_history(random.below(2) == 0, 50, RecordContext::All),
            _ => drop(device.trace()),
        }
    }

    fn finish(self) {
        for addr in std::mem::take(&mut *self.live.lock()).into_keys() {
            self.registry.deallocate(addr).expect("live");
        }
        let device = self.registry.device(0).expect("there");
        device.record_history(false, 0, RecordContext::Never);
        device.release_pool(POOL).expect("in use");
        device.empty_cache(MempoolId::DEFAULT).expect("works");
        self.registry.check_consistency().expect("consistent");
        assert!(
            self.dropped.load(Ordering::Relaxed) > 0,
            "no context was dropped"
        );
        assert_eq!(self.driver.held(0), (0, 0), "memory leaked");
        assert_eq!(
            self.driver.held_virtual(0),
            (0, 0),
            "physical memory leaked"
        );
    }
}
