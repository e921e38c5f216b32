//! The machine: all devices of a process and what is on them. This file holds
//! the state, the passing of time and the effects of tasks; the calls are in
//! the files beside it, by topic.

mod aliasing;
mod capture;
mod conditions;
mod devices;
mod events;
mod functions;
pub mod host;
pub mod memory;
mod replay;
mod sharing;
mod sizes;
mod streams;
mod task_groups;
mod values;
mod virtual_memory;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use ascend_rs_sys::ACL_ERROR_RT_INVALID_DEVICEID;

use self::host::Pinned;
use super::capture::{Model, TaskGroup};
use super::clock::Clock;
use super::condition::Condition;
use super::config::{Config, Mode};
use super::cost::CallKind;
use super::device::Device;
use super::error::{Failure, Result, fail};
use super::event::Event;
use super::ledger::{Hazard, HazardKind};
use super::memory::{WINDOW as PLAIN_WINDOW, WINDOW_BASE as PLAIN_BASE, device_of};
use super::stream::Stream;
use super::table::{Table, Tag};
use super::vmm::{Vmm, WINDOW_BASE, WINDOW_LEN};
use super::work::{Access, Accesses, Action, HostCall};
use crate::backing::Backing;
use crate::backing::pages::Pages;
use crate::backing::phantom::Phantom;

/// Effect of a task, waiting for its time.
#[derive(Debug)]
struct Due {
    end: u64,
    sequence: u64,
    stream: u64,
    accesses: Accesses,
    action: Action,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.end, self.sequence).cmp(&(other.end, other.sequence))
    }
}

/// What a call depends on besides its arguments.
#[derive(Debug, Clone, Copy, Default)]
pub struct Caller {
    /// A number of the thread's own.
    pub thread: u64,
    /// The thread's current device, or 0.
    pub device: u32,
    /// The thread's mode for captures (`ACL_MODEL_RI_CAPTURE_MODE_*`).
    pub exchange: u32,
}

/// The whole simulator of one process.
pub struct Sim {
    /// Knobs; changes take effect with the next call.
    pub config: Config,
    /// The host's clock.
    pub clock: Clock,
    /// The devices.
    pub devices: Vec<Device>,
    /// Streams of all devices.
    pub streams: Table<Stream>,
    /// Events of all devices.
    pub events: Table<Event>,
    /// Captured models.
    pub models: Table<Model>,
    /// Groups of captured tasks.
    pub groups: Table<TaskGroup>,
    /// Conditions of captured models.
    pub conditions: Table<Condition>,
    /// Who makes the present call.
    pub caller: Caller,
    /// Virtual memory.
    pub vmm: Vmm,
    /// Host memory of `aclrtMallocHost`, by address.
    pub host: BTreeMap<u64, Pinned>,
    /// Host memory that is registered, by address.
    pub registered: BTreeMap<u64, Pinned>,
    /// Number of devices the program can see.
    pub visible: u32,
    /// Functions of the host whose time has come, oldest first.
    pub outbox: Vec<HostCall>,
    imports: BTreeMap<String, u64>,
    exports: BTreeMap<u64, Vec<String>>,
    backing: Box<dyn Backing>,
    due: BinaryHeap<Reverse<Due>>,
    sequence: u64,
    next_stream_id: i32,
    blocked_streams: usize,
    next_model: u32,
    captures: usize,
}

impl Sim {
    /// A machine with nothing on it.
    pub fn new(config: Config) -> Self {
        let backing: Box<dyn Backing> = match config.mode {
            Mode::Phantom => Box::<Phantom>::default(),
            Mode::Backed => Box::<Pages>::default(),
        };
        let devices = (0..config.devices)
            .map(|index| Device::new(index, config.capacity, config.huge_1g_pages))
            .collect();
        let mut sim = Sim {
            vmm: Vmm::new(config.alias, config.handles_again),
            clock: Clock::default(),
            devices,
            streams: Table::new(Tag::Stream).giving_again(config.handles_again),
            events: Table::new(Tag::Event).giving_again(config.handles_again),
            host: BTreeMap::new(),
            registered: BTreeMap::new(),
            visible: config.visible.min(config.devices),
            outbox: Vec::new(),
            imports: BTreeMap::new(),
            exports: BTreeMap::new(),
            backing,
            due: BinaryHeap::new(),
            sequence: 0,
            next_stream_id: 0,
            blocked_streams: 0,
            next_model: 0,
            captures: 0,
            models: Table::new(Tag::Model),
            groups: Table::new(Tag::TaskGroup),
            conditions: Table::new(Tag::Condition),
            caller: Caller::default(),
            config,
        };
        for device in 0..sim.config.devices {
            let stream = sim.add_stream(device);
            sim.devices[device as usize].default_stream = stream;
        }
        sim
    }

    /// Index of a device that exists.
    pub fn device_index(&self, device: i32) -> Result<u32> {
        match u32::try_from(device) {
            Ok(index) if index < self.visible => Ok(index),
            _ => fail(ACL_ERROR_RT_INVALID_DEVICEID, "no such device"),
        }
    }

    /// A device by index.
    pub fn device(&mut self, device: u32) -> &mut Device {
        &mut self.devices[device as usize]
    }

    /// Counts a call, and fails it if a plan says so.
    pub fn begin(&mut self, kind: CallKind, device: u32, bytes: u64) -> Result<()> {
        self.devices[device as usize].ledger.call_mut(kind).count += 1;
        if !self.config.faults.is_empty()
            && let Some(code) = self.config.faults.check(kind, bytes)
        {
            return fail(code, "the fault plan made this call fail");
        }
        Ok(())
    }

    /// Lets a call cost its time, after it took effect: a free or an unmap is
    /// judged by what is pending when it is called. A call that failed costs
    /// nothing for its size.
    pub fn finish(&mut self, kind: CallKind, device: u32, bytes: u64, succeeded: bool) {
        let cost = self
            .config
            .cost
            .call(kind, if succeeded { bytes } else { 0 });
        let stat = self.devices[device as usize].ledger.call_mut(kind);
        stat.ns = stat.ns.saturating_add(cost);
        stat.failed += u64::from(!succeeded);
        self.spend(cost);
    }

    /// The host is busy; tasks that complete meanwhile take effect.
    pub fn spend(&mut self, nanoseconds: u64) {
        let end = self.clock.now().saturating_add(nanoseconds);
        self.run_until(end);
    }

    /// The host waits until a time, on account of a call.
    pub fn wait_until(&mut self, time: u64, kind: CallKind, device: u32) {
        let begin = self.clock.now();
        self.run_until(time);
        let waited = self.clock.now() - begin;
        self.clock.count_wait(waited);
        self.devices[device as usize].ledger.call_mut(kind).wait_ns += waited;
    }

    /// A number for an allocation or a mapping, never given twice.
    fn next_number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Lets time pass, from one instant at which something happens to the next:
    /// what a stream does once it can go on does not depend on how far the host
    /// goes at once.
    fn run_until(&mut self, end: u64) {
        self.settle();
        while let Some(instant) = self.next_instant().filter(|&instant| instant <= end) {
            self.clock.advance_to(instant);
            self.settle();
        }
        self.clock.advance_to(end);
    }

    /// The next time at which a task takes effect or a stream gets to a command
    /// it may have to wait at.
    fn next_instant(&self) -> Option<u64> {
        let effect = self.due.peek().map(|Reverse(due)| due.end);
        if self.blocked_streams == 0 {
            return effect;
        }
        let now = self.clock.now();
        let arrivals = self
            .streams
            .iter()
            .filter(|(_, stream)| !stream.blocked.is_empty() && stream.tail > now)
            .map(|(_, stream)| stream.tail);
        arrivals.chain(effect).min()
    }

    /// Lets all tasks take effect whose time has come, in the order of their
    /// times, and ties in the order they were put on streams.
    fn settle(&mut self) {
        while self.effects_due() {
            while self.effects_due()
                && let Some(Reverse(due)) = self.due.pop()
            {
                self.perform(due);
            }
            // What streams wait for is looked at when all effects are there;
            // that may put new ones on them.
            self.unblock();
        }
        self.unblock();
    }

    /// True if a task has come to its end and its effect has not taken place.
    fn effects_due(&self) -> bool {
        let next = self.due.peek();
        next.is_some_and(|Reverse(due)| due.end <= self.clock.now())
    }

    fn perform(&mut self, due: Due) {
        // Memory that went away under the task was reported when it went; now
        // nothing may be read or written there. (If it was the host's, the task
        // lost its effect when it went.)
        let gone = due.accesses.iter().any(|access| !self.mapped(access));
        if gone {
            return;
        }
        match due.action {
            Action::Copy { dst, src, len } => {
                self.backing
                    .copy(dst, src, len, is_device(dst), is_device(src));
            }
            Action::Fill { dst, value, len } => self.backing.fill(dst, value, len),
            Action::WriteValue { addr, value } => self.backing.write_word(addr, value),
            Action::Compute(kernel) => {
                if self.backing.real() {
                    kernel.run();
                }
            }
            Action::Host(call) => self.outbox.push(HostCall {
                // Of a replay that is not the stream it was captured on.
                stream: due.stream,
                ..call
            }),
        }
    }

    /// True if a range is host memory or lies in one live allocation or in
    /// mappings without a gap that some device may touch.
    pub fn mapped(&self, access: &Access) -> bool {
        if !is_device(access.addr) || access.len == 0 {
            return true;
        }
        let Some(end) = access.addr.checked_add(access.len) else {
            return false;
        };
        if let Some(device) = device_of(access.addr) {
            let Some(device) = self.devices.get(device as usize) else {
                return false;
            };
            return device
                .memory
                .find(access.addr)
                .is_some_and(|(start, it)| end <= start + it.present());
        }
        let mut at = access.addr;
        while at < end {
            match self.vmm.find(at) {
                Some((start, mapping)) if mapping.access != 0 => at = start + mapping.len,
                _ => return false,
            }
        }
        true
    }

    /// Writes down a hazard.
    pub fn hazard(
        &mut self,
        kind: HazardKind,
        device: u32,
        addr: u64,
        len: u64,
        name: &'static str,
    ) {
        let time = self.clock.now();
        let hazard = Hazard {
            kind,
            device,
            addr,
            len,
            time,
            name,
        };
        self.devices[device as usize].ledger.hazard(hazard);
    }

    /// The task, if any, that is not complete and touches a range, and the device of
    /// its stream.
    fn user_of(&self, addr: u64, len: u64) -> Option<(u32, &'static str)> {
        let now = self.clock.now();
        self.streams.iter().find_map(|(_, stream)| {
            let name = stream.user_of(now, addr, len)?;
            Some((stream.device, name))
        })
    }

    /// Bytes of device memory that are allocated and were not freed: plain
    /// allocations, then physical handles.
    pub fn outstanding(&self, device: u32) -> (u64, u64) {
        let plain = self.devices[device as usize].memory.live();
        let plain = plain
            .filter(|(_, it)| !it.imported)
            .map(|(_, it)| it.len)
            .sum();
        let physical = self
            .vmm
            .handles()
            .filter(|(_, it)| it.place == super::vmm::Place::Device(device) && !it.imported)
            .map(|(_, it)| it.len)
            .sum();
        (plain, physical)
    }

    /// Fails if the device was lost.
    pub fn healthy(&self, device: u32) -> Result<()> {
        match self.devices[device as usize].broken {
            Some(code) => Err(Failure {
                code,
                text: "the device is in an error state",
            }),
            None => Ok(()),
        }
    }
}

/// True for an address that can only be device memory (or memory mapped
/// through the driver), false for any other address of the host.
pub fn is_device(addr: u64) -> bool {
    (WINDOW_BASE..WINDOW_BASE + WINDOW_LEN).contains(&addr)
        || (PLAIN_BASE..PLAIN_BASE + 16 * PLAIN_WINDOW).contains(&addr)
}
