//! Random programs at full speed: several devices, streams and pools, uses on other streams, captures,
//! settings, lack of memory and failing driver calls, for as many operations as are asked for.
//!
//! Every block handed out is compared with all live blocks of its device, and every free must find its
//! block. All bookkeeping is recounted at intervals, and at the end nothing may be left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use npualloc::device::DeviceAllocator;
use npualloc::driver::fake::FakeDriver;
use npualloc::error::AllocError;
use npualloc::ids::{MempoolId, StreamKey};
use npualloc::lease::act_as;
use npualloc::registry::Registry;

use crate::Random;
use crate::op::{CHANGES, CONFIGS, FAULT_CODES, settings};
use crate::watch::token;

const DEVICES: usize = 3;
const STREAMS: usize = 4;
/// Live blocks of a device that a round aims at, by round.
const LIVE: [usize; 4] = [8, 64, 500, 4000];
const CAPACITY: usize = 8 << 30;
/// Operations after which a round with other settings begins.
pub const ROUND: u64 = 4_000_000;
/// Operations between two recounts.
const RECOUNT: u64 = 100_000;
/// Bytes that may be obtained ahead of need in rounds that do so.
const AHEAD: usize = 64 << 20;

/// What was done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Allocations, frees and recorded uses.
    pub operations: u64,
    /// Requests that failed for want of memory.
    pub out_of_memory: u64,
    /// Driver calls made to fail.
    pub faults: u64,
    /// Driver calls.
    pub driver_calls: u64,
    /// Recounts of all bookkeeping.
    pub recounts: u64,
    /// Rounds: settings × sizes × numbers of blocks.
    pub rounds: u64,
}

struct Live {
    addr: usize,
    end: usize,
}

struct Round {
    random: Random,
    driver: Arc<FakeDriver>,
    registry: Registry,
    /// Blocks in no order, by device.
    blocks: Vec<Vec<Live>>,
    /// The same blocks, start → end.
    places: Vec<BTreeMap<usize, usize>>,
    target: usize,
    octaves: usize,
    /// The code of the failure that a driver call was told to have.
    planned: Option<i32>,
    /// Bytes that may come ahead of need.
    ahead: usize,
    tally: Tally,
}

/// Runs rounds until `operations` are done. `report` is told after each round.
///
/// # Panics
/// When a rule is broken; the message holds the round's seed.
pub fn churn(
    operations: u64,
    seed: u64,
    mut report: impl FnMut(&Tally, std::time::Duration),
) -> Tally {
    let begin = Instant::now();
    let mut total = Tally::default();
    while total.operations < operations {
        let left = (operations - total.operations).min(ROUND);
        let mut round = Round::new(seed.wrapping_add(total.rounds), total.rounds as usize);
        round.run(left);
        let done = round.finish();
        total.operations += done.operations;
        total.out_of_memory += done.out_of_memory;
        total.faults += done.faults;
        total.driver_calls += done.driver_calls;
        total.recounts += done.recounts;
        total.rounds += 1;
        report(&total, begin.elapsed());
    }
    total
}

impl Round {
    fn new(seed: u64, number: usize) -> Self {
        let driver = Arc::new(FakeDriver::new(CAPACITY));
        let mut random = Random::new(seed);
        if random.below(2) == 0 {
            driver.refuse_aliasing();
        }
        // Every other round has the engine that users get. The number of configurations is odd, so each is run with it.
        let probe = number.is_multiple_of(2);
        let mut settings =
            settings(CONFIGS[number % CONFIGS.len()], probe).expect("valid settings");
        // A thread beside the program in half of the rounds.
        if random.below(2) == 0 {
            settings.prefetch = AHEAD;
        }
        let ahead = settings.prefetch;
        let registry = Registry::new(driver.clone(), settings, 32);
        registry.init(DEVICES as i32).expect("devices");
        if random.below(2) == 0 {
            registry
                .devices()
                .for_each(|device| device.assume_heavy_traffic());
        }
        if random.below(2) == 0 {
            registry
                .devices()
                .for_each(|device| device.assume_many_blocks());
        }
        if random.below(2) == 0 {
            registry.devices().for_each(|device| device.assume_crowd());
        }
        if random.below(4) == 0 {
            registry.devices().for_each(|device| {
                device.lend_eagerly();
                device.share_eagerly();
            });
        }
        if random.below(4) == 0 {
            registry.devices().for_each(|device| device.plan_eagerly());
        }
        let target = LIVE[random.below(LIVE.len())];
        // One round in eight wants more memory than there is, again and again.
        let much = usize::from(random.below(8) == 0);
        let most = (CAPACITY / target).ilog2() as usize - 8 + much;
        let octaves = (5 + random.below(17)).min(most);
        let round = Self {
            driver,
            registry,
            blocks: (0..DEVICES).map(|_| Vec::new()).collect(),
            places: vec![BTreeMap::new(); DEVICES],
            target,
            octaves,
            random,
            planned: None,
            ahead,
            tally: Tally::default(),
        };
        for device in 0..DEVICES {
            for pool in 1..3 {
                round
                    .device(device)
                    .create_or_incref_pool(pool_id(pool), false)
                    .expect("new");
            }
        }
        round
    }

    fn device(&self, device: usize) -> &DeviceAllocator {
        self.registry.device(device as i32).expect("initialised")
    }

    /// The code of the planned failure where it has happened since the last question.
    #[inline]
    fn failed(&mut self) -> Option<i32> {
        let code = self.planned?;
        if self.driver.failure_is_planned() {
            return None;
        }
        self.planned = None;
        self.tally.faults += 1;
        Some(code)
    }

    /// The `nth` driver call from now (0 = the next one) fails with `code`.
    fn plan(&mut self, nth: u64, code: i32) {
        // Memory may have been obtained ahead since the last operation, and the plan before this one used up.
        self.failed();
        self.driver.fail_call(nth, code);
        self.planned = Some(code);
    }

    /// An error is right only where a driver call failed during the operation, and must be that failure.
    fn expect(error: &AllocError, fault: Option<i32>) {
        match error {
            AllocError::Driver(error) if Some(error.code) == fault => {}
            error => panic!("nobody planned: {error}"),
        }
    }

    fn run(&mut self, operations: u64) {
        let mut recount = RECOUNT;
        while self.tally.operations < operations {
            let device = self.random.below(DEVICES);
            // A stretch of work on one device, as programs do it.
            for _ in 0..64 {
                // Whose leases these are: work of some threads, one after the other.
                act_as(self.random.below(3));
                self.step(device);
            }
            if self.random.below(2) == 0 {
                self.short_lived(device);
            }
            if self.random.below(2) == 0 {
                let stream = self.random.below(STREAMS) as u8;
                self.driver.finish(token(device as u32, stream));
            }
            if self.random.below(256) == 0 {
                self.rare(device);
            }
            if self.tally.operations >= recount {
                recount += RECOUNT;
                self.recount();
            }
        }
    }

    #[inline]
    fn step(&mut self, device: usize) {
        let live = self.blocks[device].len();
        if self.random.below(2 * self.target) >= live {
            self.allocate(device);
        } else if self.random.below(64) == 0 {
            self.record(device);
        } else {
            let at = self.random.below(live);
            self.free(device, at);
        }
    }

    /// Blocks that come and go at once, of a few sizes, as temporary buffers of operators do: most of what
    /// programs do, and what the allocator is quickest at.
    fn short_lived(&mut self, device: usize) {
        let stream = StreamKey(self.random.below(STREAMS));
        let sizes = [0; 3].map(|_| self.bytes());
        for turn in 0..256 {
            let bytes = sizes[turn % sizes.len()];
            self.tally.operations += 1;
            let outcome = self.registry.allocate(device as i32, bytes, stream);
            let fault = self.failed();
            match outcome {
                Ok(addr) => {
                    self.check_unused(device, addr, addr + bytes + 32);
                    self.registry.deallocate(addr).expect("live");
                    self.failed();
                    self.tally.operations += 1;
                }
                Err(AllocError::OutOfMemory(_) | AllocError::Rejected(_)) => {
                    self.tally.out_of_memory += 1;
                    return;
                }
                Err(error) => Self::expect(&error, fault),
            }
        }
    }

    fn bytes(&mut self) -> usize {
        let low = 256usize << self.random.below(self.octaves);
        low + self.random.below(low)
    }

    /// No live block lies there.
    #[inline]
    fn check_unused(&self, device: usize, addr: usize, end: usize) {
        let before = self.places[device].range(..end).next_back();
        assert!(
            before.is_none_or(|(_, other)| *other <= addr),
            "{addr:#x} is in use"
        );
    }

    fn allocate(&mut self, device: usize) {
        let bytes = self.bytes();
        let stream = StreamKey(self.random.below(STREAMS));
        let pool = if self.random.below(16) == 0 {
            self.random.below(3) as u64
        } else {
            0
        };
        let outcome = if pool == 0 {
            self.registry.allocate(device as i32, bytes, stream)
        } else {
            self.registry
                .allocate_in(device as i32, bytes, stream, pool_id(pool), None)
        };
        let fault = self.failed();
        self.tally.operations += 1;
        match outcome {
            Ok(addr) => {
                let end = addr + bytes + 32;
                self.check_unused(device, addr, end);
                self.places[device].insert(addr, end);
                self.blocks[device].push(Live { addr, end });
            }
            Err(AllocError::OutOfMemory(_) | AllocError::Rejected(_)) => {
                self.tally.out_of_memory += 1;
                // Fewer blocks from now on: running out again and again tests nothing else.
                for _ in 0..self.blocks[device].len() / 2 {
                    self.free(device, 0);
                }
            }
            Err(error) => Self::expect(&error, fault),
        }
    }

    fn free(&mut self, device: usize, at: usize) {
        let block = self.blocks[device].swap_remove(at);
        assert_eq!(self.places[device].remove(&block.addr), Some(block.end));
        self.registry.deallocate(block.addr).expect("live");
        self.failed();
        self.tally.operations += 1;
    }

    fn record(&mut self, device: usize) {
        let live = self.blocks[device].len();
        if live > 0 {
            let addr = self.blocks[device][self.random.below(live)].addr;
            let user = token(device as u32, self.random.below(STREAMS) as u8);
            self.registry.record_stream(addr, user).expect("live");
            self.failed();
            self.driver.submit(user);
            self.tally.operations += 1;
        }
    }

    fn rare(&mut self, device: usize) {
        let allocator = self.registry.device(device as i32).expect("initialised");
        let outcome = match self.random.below(10) {
            0 => allocator.empty_cache(MempoolId::DEFAULT),
            1 => {
                allocator.reset_peak_stats();
                Ok(())
            }
            2 => {
                let change = CHANGES[self.random.below(CHANGES.len())];
                match self.registry.apply_settings(change) {
                    Ok(()) | Err(AllocError::Config(_)) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            3 => {
                let percent = 30 + self.random.below(71);
                allocator.set_memory_fraction(percent as f64 / 100.0)
            }
            4 => {
                let code = FAULT_CODES[self.random.below(FAULT_CODES.len())];
                let nth = self.random.below(8) as u64;
                self.plan(nth, code);
                return;
            }
            5 => {
                let others = self.random.below(CAPACITY / 2);
                self.driver.set_others(device as u32, others);
                Ok(())
            }
            6 => {
                allocator.set_use_on_oom(pool_id(1), self.random.below(2) == 0);
                Ok(())
            }
            7 => {
                allocator.mark_capture_begin();
                self.driver.set_capturing(true);
                for _ in 0..32 {
                    self.step(device);
                }
                self.driver.set_capturing(false);
                self.device(device).mark_capture_end()
            }
            8 => {
                allocator.snapshot(MempoolId::DEFAULT);
                Ok(())
            }
            _ => allocator.empty_virtual_cache(),
        };
        let fault = self.failed();
        if let Err(error) = outcome {
            Self::expect(&error, fault);
        }
    }

    fn recount(&mut self) {
        self.tally.recounts += 1;
        self.registry.check_consistency().expect("consistent");
        for device in 0..DEVICES {
            let allocator = self.device(device);
            let (stats, _) = allocator.stats();
            assert_eq!(
                stats.allocation.current() as usize,
                self.blocks[device].len()
            );
            let reserved = stats.reserved_bytes.current() as usize;
            let held = self.driver.held(device as u32).1;
            // What was ordered ahead counts as idle before it is there.
            let known = reserved + allocator.idle_physical_bytes();
            assert!(
                (held..=held + self.ahead).contains(&known),
                "bytes lost or invented: {known} known, {held} held"
            );
        }
    }

    fn finish(mut self) -> Tally {
        self.failed();
        self.driver.withdraw_failure();
        self.planned = None;
        for device in 0..DEVICES {
            while !self.blocks[device].is_empty() {
                self.free(device, 0);
            }
            for pool in 1..3 {
                self.device(device)
                    .release_pool(pool_id(pool))
                    .expect("in use");
            }
            self.device(device)
                .empty_cache(MempoolId::DEFAULT)
                .expect("works");
        }
        self.recount();
        for device in 0..DEVICES as u32 {
            assert_eq!(self.driver.held(device), (0, 0), "memory leaked");
            assert_eq!(
                self.driver.held_virtual(device),
                (0, 0),
                "physical memory leaked"
            );
        }
        self.tally.driver_calls = self.driver.total_calls();
        self.tally
    }
}

#[cfg(test)]
mod tests;

fn pool_id(pool: u64) -> MempoolId {
    MempoolId {
        first: 0,
        second: pool,
    }
}
