//! What is done before and after allocations and frees.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::compare::compare;
use super::findings::{Findings, say};
use super::records::{Moment, Record, Records};
use super::shadow::{Poisoned, Shadow, Span};
use super::unsettled::Unsettled;
use super::{MOST_ZONE, POISON_BYTE, RED_ZONE, ZONE_BYTE};
use crate::config::{DebugOptions, UNIT};
use crate::device::{BlockView, DeviceAllocator};
use crate::driver::{Contents, Driver};
use crate::error::Result;
use crate::ids::{DeviceId, MempoolId};

const UNKNOWN: u8 = 0;
const KEEPS: u8 = 1;
const LOSES: u8 = 2;

/// The checks of a process. Thread-safe; holds no lock while it calls the driver.
pub struct Debug {
    options: DebugOptions,
    driver: Arc<dyn Driver>,
    started: Instant,
    records: Mutex<Records>,
    shadow: Shadow,
    findings: Findings,
    /// Whether memory keeps what is written to it: not in a simulator without backing.
    keeps: AtomicU8,
    unsettled: Unsettled,
    exiting: AtomicBool,
}

/// A block on its way to be freed, with its record where it has one.
pub struct Held(usize, Option<Arc<Record>>);

impl Debug {
    /// Checks by means of a driver.
    pub fn new(options: DebugOptions, driver: Arc<dyn Driver>) -> Self {
        Self {
            options,
            driver,
            started: Instant::now(),
            records: Mutex::default(),
            shadow: Shadow::default(),
            findings: Findings::default(),
            keeps: AtomicU8::new(UNKNOWN),
            unsettled: Unsettled::default(),
            exiting: AtomicBool::new(false),
        }
    }

    /// Bytes to add to every request.
    pub fn pad(&self) -> usize {
        if self.options.redzones { RED_ZONE } else { 0 }
    }

    /// Which checks are on.
    pub fn options(&self) -> DebugOptions {
        self.options
    }

    /// From now on no contents are looked at.
    pub fn begin_process_exit(&self) {
        self.exiting.store(true, Ordering::Release);
    }

    /// Fails when damage was found and not told yet.
    pub fn raise(&self) -> Result<()> {
        self.findings.raise()
    }

    /// A block was handed out: what was written to it while it was free, its red zone, its record.
    pub fn allocated(&self, device: &DeviceAllocator, block: &BlockView) {
        let span = Span {
            addr: block.addr,
            bytes: block.size,
        };
        let poisoned = self.shadow.take(span);
        let mut zone = None;
        // Replays of a graph write to what is free in its pool.
        let replayed = block.pool != MempoolId::DEFAULT;
        let contents = if replayed {
            self.settled(device)
        } else {
            self.at_rest(device)
        };
        if let Some(contents) = contents {
            for part in &poisoned {
                self.verify_poison(contents, device.id(), part);
            }
            zone = self.paint(contents, device.id(), block);
        }
        let allocated = self.moment();
        let mut records = self.records.lock();
        let record = Record {
            serial: records.next_serial(),
            device: device.id(),
            addr: block.addr,
            size: block.size,
            requested: block.requested,
            stream: block.stream,
            pool: block.pool,
            zone,
            slept: AtomicBool::new(false),
            allocated,
            freed: None,
            reported: AtomicBool::new(false),
        };
        records.add(Arc::new(record));
    }

    /// A block is about to be freed: its red zone. `None` where another thread is freeing it.
    pub fn freeing(&self, device: &DeviceAllocator, addr: usize) -> Option<Held> {
        // Whoever takes the record frees the block; who comes second has a pointer to nothing.
        let live = self.records.lock().begin_free(addr)?;
        let freed = live.map(|live| self.inspect(device, &live));
        Some(Held(addr, freed))
    }

    /// Looks at a block that is to be freed; its record from then on.
    fn inspect(&self, device: &DeviceAllocator, live: &Arc<Record>) -> Arc<Record> {
        if device.is_asleep_at(live.addr) {
            return Arc::new(self.ended(live));
        }
        if let Some(contents) = self.settled(device) {
            self.verify_zone(contents, live, false);
            let freed = Arc::new(self.ended(live));
            if self.options.poison && live.pool == MempoolId::DEFAULT {
                let span = live.span();
                let filled = contents.fill(device.id(), span.addr, span.bytes, POISON_BYTE);
                if filled.is_ok() {
                    self.shadow.add(span, freed.clone());
                }
            }
            return freed;
        }
        if self.options.contents() {
            self.unsettled.add(device.id());
        }
        Arc::new(self.ended(live))
    }

    /// The block was freed, or, where `there` is false, was none any more.
    pub fn freed(&self, held: Held, there: bool) {
        let Held(addr, record) = held;
        let mut records = self.records.lock();
        records.end_free(addr);
        if let Some(record) = record.filter(|_| there && self.options.history) {
            records.remember(record);
        }
    }

    /// Blocks came and went behind the checks' back: a pool went back to a checkpoint.
    pub fn restored(&self, device: &DeviceAllocator, freed: &[usize], allocated: &[usize]) {
        let mut records = self.records.lock();
        for addr in freed {
            records.take(*addr);
        }
        drop(records);
        for addr in allocated {
            if let Some(block) = device.describe_block(*addr) {
                self.shadow.take(Span {
                    addr: block.addr,
                    bytes: block.size,
                });
            }
        }
    }

    /// What sleeps on a device is about to have new memory, with no particular contents.
    pub fn waking(&self, device: &DeviceAllocator) {
        let live = self.records.lock().live();
        for record in live.iter().filter(|r| r.device == device.id()) {
            if device.is_asleep_at(record.addr) {
                record.slept.store(true, Ordering::Release);
            }
        }
    }

    /// Memory goes back to the driver.
    pub(super) fn released(&self, device: DeviceId, addr: usize, bytes: usize) {
        let poisoned = self.shadow.take(Span { addr, bytes });
        if let Some(contents) = self.driver.contents()
            && self.keeps.load(Ordering::Acquire) == KEEPS
            && !self.exiting.load(Ordering::Acquire)
        {
            for part in &poisoned {
                self.verify_poison(contents, device, part);
            }
        }
    }

    /// Looks at every red zone and all poisoned memory of a device, after waiting for it. Returns how many
    /// bytes were looked at.
    pub fn check(&self, device: &DeviceAllocator) -> usize {
        let Some(contents) = self.settled(device) else {
            return 0;
        };
        let mut bytes = 0;
        let live = self.records.lock().live();
        for record in live.iter().filter(|r| r.device == device.id()) {
            if device.is_asleep_at(record.addr) {
                continue;
            }
            bytes += record.intact_zone().map_or(0, |zone| zone.bytes);
            self.verify_zone(contents, record, true);
        }
        let all = self.shadow.all();
        for part in all.iter().filter(|p| p.record.device == device.id()) {
            bytes += part.span.bytes;
            let found = compare(contents, device.id(), part.span, POISON_BYTE);
            // Other threads may have taken the memory into use since.
            if found.is_ok_and(|found| found.is_some()) && self.shadow.holds(part) {
                self.shadow.take(part.span);
                self.verify_poison(contents, device.id(), part);
            }
        }
        bytes
    }

    /// What is known about an address that is no live block's; empty unless histories are kept.
    pub fn explain(&self, addr: usize) -> String {
        if self.options.history {
            self.records.lock().describe(addr)
        } else {
            String::new()
        }
    }

    fn moment(&self) -> Moment {
        let thread = std::thread::current();
        let id = format!("{:?}", thread.id());
        let stack = self.options.history.then(|| self.driver.stack()).flatten();
        Moment {
            at: Duration::from_nanos(self.started.elapsed().as_nanos() as u64),
            thread: thread.name().map_or(id, str::to_owned),
            stack,
        }
    }

    /// The record of a block that is freed now.
    fn ended(&self, live: &Record) -> Record {
        Record {
            freed: Some(self.moment()),
            allocated: live.allocated.clone(),
            reported: AtomicBool::new(true),
            slept: AtomicBool::new(false),
            ..*live
        }
    }

    /// Whether contents may be looked at: not at the end of the process, while a graph is captured, or where
    /// memory keeps nothing.
    fn contents(&self, device: &DeviceAllocator) -> Option<&dyn Contents> {
        let can = self.options.contents()
            && self.keeps.load(Ordering::Acquire) != LOSES
            && !self.exiting.load(Ordering::Acquire)
            && !device.is_capturing_anything();
        if can { self.driver.contents() } else { None }
    }

    /// As [`Self::contents`], after everything submitted so far is done.
    fn settled(&self, device: &DeviceAllocator) -> Option<&dyn Contents> {
        let contents = self.contents(device)?;
        contents.settle(device.id()).ok()?;
        Some(contents)
    }

    /// As [`Self::contents`], where free memory is at rest.
    fn at_rest(&self, device: &DeviceAllocator) -> Option<&dyn Contents> {
        let contents = self.contents(device)?;
        if let Some(count) = self.unsettled.outstanding(device.id()) {
            contents.settle(device.id()).ok()?;
            self.unsettled.settle(device.id(), count);
        }
        Some(contents)
    }

    /// Writes the red zone of a new block.
    fn paint(&self, contents: &dyn Contents, device: DeviceId, block: &BlockView) -> Option<Span> {
        let unit = if self.options.units { UNIT } else { 1 };
        let start = block.addr + block.requested.next_multiple_of(unit);
        let end = (block.addr + block.size).min(start + MOST_ZONE);
        if self.keeps.load(Ordering::Acquire) == UNKNOWN {
            self.probe(contents, device, block.addr + block.size - 1);
        }
        if !self.options.redzones || start >= end || self.keeps.load(Ordering::Acquire) == LOSES {
            return None;
        }
        let zone = Span {
            addr: start,
            bytes: end - start,
        };
        let filled = contents.fill(device, zone.addr, zone.bytes, ZONE_BYTE);
        filled.is_ok().then_some(zone)
    }

    /// Finds out with a new block's last byte whether memory keeps what is written to it.
    fn probe(&self, contents: &dyn Contents, device: DeviceId, addr: usize) {
        let mut byte = [0];
        let answer = contents
            .fill(device, addr, 1, ZONE_BYTE)
            .and_then(|()| contents.read(device, addr, &mut byte));
        if answer.is_err() {
            return;
        }
        if byte == [ZONE_BYTE] {
            self.keeps.store(KEEPS, Ordering::Release);
        } else if self.keeps.swap(LOSES, Ordering::AcqRel) == UNKNOWN {
            say(
                "device memory does not keep what is written to it (a simulated device without \
                 backing?): NPUALLOC_DEBUG checks no contents",
            );
        }
    }

    /// `live`: another thread may free the block meanwhile, and its memory be used for others.
    fn verify_zone(&self, contents: &dyn Contents, record: &Arc<Record>, live: bool) {
        let Some(zone) = record.intact_zone() else {
            return;
        };
        let Ok(Some(found)) = compare(contents, record.device, zone, ZONE_BYTE) else {
            return;
        };
        let there = |records: &Records| {
            let at = records.at(record.addr);
            at.is_some_and(|at| Arc::ptr_eq(at, record))
        };
        if live && !there(&self.records.lock()) {
            return;
        }
        if record.reported.swap(true, Ordering::AcqRel) {
            return;
        }
        let after = self.records.lock().at(record.span().end()).cloned();
        let mut text = format!(
            "memory was written past the end of a block: {}\n{record}",
            found.describe(record.addr)
        );
        if let Some(after) = after {
            text += &format!("\nor before the start of\n{after}");
        }
        self.findings.add(text);
    }

    fn verify_poison(&self, contents: &dyn Contents, device: DeviceId, part: &Poisoned) {
        let Ok(Some(found)) = compare(contents, device, part.span, POISON_BYTE) else {
            return;
        };
        let record = &part.record;
        let mut text = format!(
            "memory was written after it was freed: {}\n{record}",
            found.describe(record.addr)
        );
        // The first bytes of free memory are also where a neighbour's end may be overrun.
        if found.first == record.addr
            && let Some(before) = self.records.lock().before(record.addr)
        {
            text += &format!("\nor past the end of\n{before}");
        }
        self.findings.add(text);
    }
}
