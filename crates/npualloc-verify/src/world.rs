//! Runs programs on the core and, beside it, on a model of what clients may rely on.

use std::collections::HashMap;
use std::sync::Arc;

use npualloc::device::DeviceAllocator;
use npualloc::driver::StreamToken;
use npualloc::driver::fake::Span;
use npualloc::error::{AllocError, Result};
use npualloc::history::RecordContext;
use npualloc::ids::{MempoolId, StreamKey};
use npualloc::registry::Registry;

use crate::op::{CHANGES, CONFIGS, FAULT_CODES, Op, POOLS, Program, STREAMS, Setup, settings};
use crate::pools::{Saved, pool_id};
use crate::watch::{Watched, token};

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
        let registry = Registry::new(driver.clone(), settings(config, setup.probe), PAD);
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

    /// Runs a step.
    ///
    /// # Panics
    /// When the allocator's answer breaks a rule.
    pub fn step(&mut self, op: Op) {
        match op {
            Op::Allocate {
                device,
                stream,
                pool,
                bytes,
            } => {
                self.allocate(
                    self.which(device),
                    stream % STREAMS,
                    pool % (POOLS + 1),
                    bytes as usize,
                );
            }
            Op::Free { pick } => {
                if let Some(at) = self.pick(pick) {
                    self.free(at);
                }
            }
            Op::FreeWrong { pick } => {
                let addr = self
                    .pick(pick)
                    .map_or(0x1000, |at| self.live[at].addr + 512);
                if self.live.iter().all(|block| block.addr != addr) {
                    let outcome = self.registry.deallocate(addr);
                    assert!(
                        matches!(outcome, Err(AllocError::InvalidPointer { addr: at }) if at == addr)
                    );
                }
            }
            Op::Record { pick, stream } => {
                if let Some(at) = self.pick(pick) {
                    let user = token(self.live[at].device, stream % STREAMS);
                    let captured = self.capturing(self.live[at].device);
                    let block = &mut self.live[at];
                    self.registry.record_stream(block.addr, user).expect("live");
                    if !captured && !block.users.contains(&user) {
                        block.users.push(user);
                    }
                }
            }
            Op::Erase { pick, stream } => {
                if let Some(at) = self.pick(pick) {
                    let block = &mut self.live[at];
                    let user = token(block.device, stream % STREAMS);
                    self.registry.erase_stream(block.addr, user).expect("live");
                    block.users.retain(|other| *other != user);
                }
            }
            Op::Submit { device, stream } => {
                self.driver
                    .inner
                    .submit(token(self.which(device), stream % STREAMS));
            }
            Op::Finish { device, stream } => {
                self.driver
                    .inner
                    .finish(token(self.which(device), stream % STREAMS));
            }
            Op::Snapshot { device } => self.check_snapshot(self.which(device)),
            Op::Others { device, percent } => {
                let device = self.which(device);
                let bytes = self.capacity / 100 * usize::from(percent % 60);
                self.devices[device as usize].others = bytes;
                self.driver.inner.set_others(device, bytes);
            }
            Op::Fault { after, code } => {
                let code = FAULT_CODES[usize::from(code) % FAULT_CODES.len()];
                self.fail_call(u64::from(after) % 16, code);
            }
            Op::Settings { change } => {
                let change = usize::from(change) % CHANGES.len();
                let outcome = self.registry.apply_settings(CHANGES[change]);
                match &outcome {
                    Ok(()) => assert!(change + 1 < CHANGES.len(), "{}", CHANGES[change]),
                    Err(AllocError::Config(_)) => {}
                    Err(error) => panic!("{error}"),
                }
                // A change at run time puts the rounding back to its default.
                self.rounds &= outcome.is_err();
                self.virtual_memory |= CHANGES[change].contains("expandable");
            }
            _ => self.step_on_device(op),
        }
    }

    fn step_on_device(&mut self, op: Op) {
        match op {
            Op::EmptyCache { device, pool } => {
                let device = self.which(device);
                if !self.capturing(device) {
                    let outcome = self.device(device).empty_cache(pool_id(pool % (POOLS + 1)));
                    self.expect(outcome);
                }
            }
            Op::EmptyVirtual { device } => {
                let device = self.which(device);
                if !self.capturing(device) {
                    let outcome = self.device(device).empty_virtual_cache();
                    self.expect(outcome);
                }
            }
            Op::Fraction { device, percent } => {
                let fraction = f64::from(20 + percent % 81) / 100.0;
                let outcome = self
                    .device(self.which(device))
                    .set_memory_fraction(fraction);
                self.expect(outcome);
            }
            Op::AddUser { device, pool } => self.add_user(self.which(device), 1 + pool % POOLS),
            Op::DropUser { device, pool } => self.drop_user(self.which(device), 1 + pool % POOLS),
            Op::Overflow { device, pool, on } => {
                let pool = pool_id(1 + pool % POOLS);
                self.device(self.which(device)).set_use_on_oom(pool, on);
            }
            Op::NoSplit { device, pool } => {
                let pool = pool_id(1 + pool % POOLS);
                self.device(self.which(device)).set_no_split(pool);
            }
            Op::BeginCapture { device } => {
                let device = self.which(device);
                self.device(device).mark_capture_begin();
                self.devices[device as usize].captures += 1;
                self.driver.inner.set_capturing(true);
            }
            Op::EndCapture { device } => self.end_capture(self.which(device)),
            Op::Save { device, pool } => self.save(self.which(device), 1 + pool % POOLS),
            Op::Restore => self.restore(),
            Op::History { device, on } => {
                let device = self.device(self.which(device));
                device.record_history(on, 100, RecordContext::Never);
            }
            _ => unreachable!("handled before"),
        }
    }

    fn allocate(&mut self, device: u32, stream: u8, pool: u8, bytes: usize) {
        let capturing = self.capturing(device);
        let key = StreamKey(stream.into());
        self.driver.forbid_waiting(capturing);
        let outcome = if pool == 0 {
            self.registry.allocate(device as i32, bytes, key)
        } else {
            self.registry
                .allocate_in(device as i32, bytes, key, pool_id(pool), None)
        };
        self.driver.forbid_waiting(false);
        let fault = self.failed();
        let users = self.devices[device as usize].users.get(&pool).copied();
        match outcome {
            Ok(0) => assert_eq!(bytes, 0, "no address"),
            Ok(addr) => {
                self.devices[device as usize].allocated += 1;
                self.enter(device, addr, bytes, token(device, stream), pool);
            }
            Err(AllocError::UnknownPool { .. }) => {
                assert!(
                    pool != 0 && users.unwrap_or(0) == 0,
                    "pool {pool} is in use"
                );
            }
            Err(AllocError::OutOfMemory(report)) => {
                self.devices[device as usize].ooms += 1;
                assert_eq!(report.requested, bytes);
                if fault.is_none() && !capturing && self.devices.iter().all(|d| d.captures == 0) {
                    self.check_out_of_memory(device, bytes, &report);
                }
            }
            Err(AllocError::Rejected(_)) => {}
            Err(AllocError::Driver(error)) => {
                assert_eq!(Some(error.code), fault, "an error nobody planned: {error}");
            }
            Err(error) => panic!("an error nobody planned: {error}"),
        }
    }

    pub(crate) fn enter(
        &mut self,
        device: u32,
        addr: usize,
        bytes: usize,
        home: StreamToken,
        pool: u8,
    ) {
        let (owner, view) = self.registry.describe_block(addr).expect("a live block");
        assert_eq!((owner.0, view.addr, view.requested), (device, addr, bytes));
        assert!(view.size >= bytes + PAD, "the block is too small");
        let spans = self.driver.handed_out(device, addr, view.size, home);
        self.live.push(Block {
            device,
            addr,
            bytes,
            size: view.size,
            home,
            pool,
            users: Vec::new(),
            spans,
        });
    }

    /// Takes a block out of the model.
    pub(crate) fn leave(&mut self, at: usize) -> Block {
        let block = self.live.swap_remove(at);
        self.driver.freed(
            block.device,
            block.addr,
            &block.spans,
            block.home,
            &block.users,
        );
        self.devices[block.device as usize].freed += 1;
        block
    }

    fn free(&mut self, at: usize) {
        let block = self.leave(at);
        self.driver.forbid_waiting(self.capturing(block.device));
        self.registry.deallocate(block.addr).expect("live");
        self.driver.forbid_waiting(false);
        self.failed();
        assert!(self.registry.deallocate(block.addr).is_err(), "freed twice");
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

/// What a run came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Driver calls that failed as planned.
    pub faults: u64,
    /// Driver calls.
    pub calls: u64,
}

/// Runs a program, checks after each step, and gives everything back at the end.
///
/// # Panics
/// When a rule is broken.
pub fn run(program: &Program) -> Outcome {
    let mut world = World::new(program.setup);
    for (at, op) in program.ops.iter().enumerate() {
        // Operations of several threads, one after the other. What they lease comes back when somebody looks.
        npualloc::lease::act_as(at * 5 % 7 % 3);
        world.step(*op);
        if !program.setup.crowded || at % 8 == 0 {
            world.check();
        }
    }
    world.check();
    let driver = world.driver.clone();
    let faults = world.finish();
    let calls = driver.inner.total_calls();
    Outcome { faults, calls }
}
