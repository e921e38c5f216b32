//! What each step of a program does, and what must be true of the answer.

use npualloc::driver::StreamToken;
use npualloc::error::AllocError;
use npualloc::history::RecordContext;
use npualloc::ids::StreamKey;

use super::{Block, PAD, World};
use crate::op::{CHANGES, FAULT_CODES, Op, POOLS, STREAMS};
use crate::pools::pool_id;
use crate::watch::token;

impl World {
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
                if fault.is_none() {
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

    pub(super) fn free(&mut self, at: usize) {
        let block = self.leave(at);
        self.driver.forbid_waiting(self.capturing(block.device));
        self.registry.deallocate(block.addr).expect("live");
        self.driver.forbid_waiting(false);
        self.failed();
        assert!(self.registry.deallocate(block.addr).is_err(), "freed twice");
    }
}
