//! Runs programs on the core and, beside it, on a model of what clients may rely on.

mod steps;

use std::collections::HashMap;
use std::sync::Arc;

use npualloc::device::DeviceAllocator;
use npualloc::driver::StreamToken;
use npualloc::driver::fake::Span;
use npualloc::error::{AllocError, Result};
use npualloc::ids::MempoolId;
use npualloc::registry::Registry;

use crate::op::{CONFIGS, POOLS, Program, Setup, settings};
use crate::pools::Saved;
use crate::watch::Watched;

/// Added to each request, bytes.
pub const PAD: usize = 32;
const MIB: usize = 1 << 20;

/// A live block as the client knows it.
#[derive(Debug, Clone)]
pub struct Block {
    /// The device.
    pub device: u32,
    /// Its start.
    pub addr: usize,
    /// Bytes asked for.
    pub bytes: usize,
    /// Bytes it has.
    pub size: usize,
    /// The stream it was allocated on.
    pub home: StreamToken,
    /// The pool it was asked of.
    pub pool: u8,
    /// Streams that use it besides.
    pub users: Vec<StreamToken>,
    /// The memory under it, which must stay the same.
    pub spans: Vec<Span>,
}

/// What the model knows of a device.
#[derive(Debug, Clone, Default)]
pub struct DeviceModel {
    /// Successful allocations so far.
    pub allocated: i64,
    /// Frees so far.
    pub freed: i64,
    /// Requests that failed for want of memory.
    pub ooms: i64,
    /// Captures under way.
    pub captures: u32,
    /// Held by another process, bytes.
    pub others: usize,
    /// Users of private pools.
    pub users: HashMap<u8, u32>,
}

/// An allocator under test and the model of it.
pub struct World {
    /// The driver.
    pub driver: Arc<Watched>,
    /// The allocator.
    pub registry: Registry,
    /// Live blocks.
    pub live: Vec<Block>,
    /// By device.
    pub devices: Vec<DeviceModel>,
    /// Of each device, bytes.
    pub capacity: usize,
    /// Sizes are rounded to steps between powers of two.
    pub rounds: bool,
    /// Segments may be virtual.
    pub virtual_memory: bool,
    /// Driver calls that failed as planned.
    pub faults: u64,
    pub(crate) saved: Option<Saved>,
    planned: Option<i32>,
}

impl World {
    /// An empty allocator.
    pub fn new(setup: Setup) -> Self {
        let capacity = usize::from(setup.capacity.max(64)) * MIB;
        let driver = Arc::new(Watched::new(capacity));
        if !setup.aliasing {
            driver.inner.refuse_aliasing();
        }
        let config = CONFIGS[usize::from(setup.config) % CONFIGS.len()];
        let settings = settings(config, setup.probe).expect("valid settings");
        let registry = Registry::new(driver.clone(), settings, PAD);
        let count = setup.devices.clamp(1, 3);
        registry.init(count.into()).expect("devices");
        if setup.heavy {
            registry.devices().for_each(|device| {
                device.assume_heavy_traffic();
                device.assume_many_blocks();
            });
        }
        if setup.crowded {
            registry.devices().for_each(|device| device.assume_crowd());
        }
        if setup.shares {
            registry.devices().for_each(|device| device.share_eagerly());
        }
        if setup.lends {
            registry.devices().for_each(|device| device.lend_eagerly());
        }
        if setup.repeats {
            registry.devices().for_each(|device| device.plan_eagerly());
        }
        Self {
            driver,
            registry,
            live: Vec::new(),
            devices: vec![DeviceModel::default(); count.into()],
            capacity,
            rounds: config.contains("roundup"),
            virtual_memory: setup.probe || config.contains("expandable"),
            faults: 0,
            saved: None,
            planned: None,
        }
    }

    /// The allocator of a device.
    pub fn device(&self, device: u32) -> &DeviceAllocator {
        self.registry.device(device as i32).expect("initialised")
    }

    fn which(&self, device: u8) -> u32 {
        u32::from(device) % self.devices.len() as u32
    }

    fn capturing(&self, device: u32) -> bool {
        self.devices[device as usize].captures > 0
    }

    fn pick(&self, pick: u16) -> Option<usize> {
        (!self.live.is_empty()).then(|| usize::from(pick) % self.live.len())
    }

    /// Whether the planned failure has happened since the last question.
    pub(crate) fn failed(&mut self) -> Option<i32> {
        let code = self.planned?;
        if self.driver.inner.failure_is_planned() {
            return None;
        }
        self.planned = None;
        self.faults += 1;
        Some(code)
    }

    /// An error is right only where a driver call failed during the step, and must be that failure.
    fn expect(&mut self, outcome: Result<()>) {
        let fault = self.failed();
        match outcome {
            Ok(()) => {}
            Err(AllocError::Driver(error)) => {
                assert_eq!(Some(error.code), fault, "an error nobody planned: {error}");
            }
            Err(error) => panic!("an error nobody planned: {error}"),
        }
    }

    /// The `nth` driver call from now (0 = the next one) fails with `code`.
    pub fn fail_call(&mut self, nth: u64, code: i32) {
        self.driver.inner.fail_call(nth, code);
        self.planned = Some(code);
    }

    /// Frees everything and gives all memory back: nothing may be left.
    pub fn finish(mut self) -> u64 {
        self.driver.inner.withdraw_failure();
        self.planned = None;
        for device in 0..self.devices.len() as u32 {
            while self.capturing(device) {
                self.end_capture(device);
            }
        }
        while !self.live.is_empty() {
            self.free(self.live.len() - 1);
        }
        for device in 0..self.devices.len() as u32 {
            for pool in 1..=POOLS {
                while self.devices[device as usize]
                    .users
                    .get(&pool)
                    .is_some_and(|users| *users > 0)
                {
                    self.drop_user(device, pool);
                }
            }
            self.device(device)
                .empty_cache(MempoolId::DEFAULT)
                .expect("works");
        }
        self.check();
        for device in 0..self.devices.len() as u32 {
            assert_eq!(self.driver.inner.held(device), (0, 0), "memory leaked");
            let held = self.driver.inner.held_virtual(device);
            assert_eq!(held, (0, 0), "physical memory or addresses leaked");
        }
        self.faults
    }
}

/// How often the steps of a program that repeats itself are done: a plan is made during the fourth time at the latest.
const TIMES: usize = 7;

/// What a run came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Driver calls that failed as planned.
    pub faults: u64,
    /// Driver calls.
    pub calls: u64,
    /// Blocks that got places of their own, as the program repeats itself.
    pub planned: u64,
}

/// Runs a program, checks after each step, and gives everything back at the end.
///
/// # Panics
/// When a rule is broken.
pub fn run(program: &Program) -> Outcome {
    let mut world = World::new(program.setup);
    let times = if program.setup.repeats { TIMES } else { 1 };
    let ops = std::iter::repeat_n(&program.ops, times).flatten();
    for (at, op) in ops.enumerate() {
        // Operations of several threads, one after the other. What they lease comes back when somebody looks.
        npualloc::lease::act_as(at * 5 % 7 % 3);
        world.step(*op);
        if !program.setup.crowded || at % 8 == 0 {
            world.check();
        }
    }
    world.check();
    let driver = world.driver.clone();
    let devices = world.registry.devices();
    let planned = devices.map(|device| device.ladder().blocks_planned).sum();
    let faults = world.finish();
    let calls = driver.inner.total_calls();
    Outcome {
        faults,
        calls,
        planned,
    }
}
