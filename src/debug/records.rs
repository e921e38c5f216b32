//! Who allocated and freed what.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::shadow::Span;
use crate::device::format_size;
use crate::ids::{DeviceId, MempoolId, StreamKey};

/// How many freed blocks are remembered.
const MOST_PAST: usize = 65_536;

/// When, on which thread and from where something was done.
#[derive(Debug, Clone)]
pub(super) struct Moment {
    /// Since the allocator was made.
    pub at: Duration,
    pub thread: String,
    /// The thread's stack as text, where recorded.
    pub stack: Option<String>,
}

/// A block's life.
#[derive(Debug)]
pub(super) struct Record {
    /// Counts allocations from 1.
    pub serial: u64,
    pub device: DeviceId,
    pub addr: usize,
    /// Bytes of the block.
    pub size: usize,
    /// Bytes the client asked for.
    pub requested: usize,
    pub stream: StreamKey,
    pub pool: MempoolId,
    /// The red zone, where it was written.
    pub zone: Option<Span>,
    /// The block slept: what the zone held is lost.
    pub slept: AtomicBool,
    pub allocated: Moment,
    pub freed: Option<Moment>,
    /// Damage of the zone was reported.
    pub reported: AtomicBool,
}

impl Record {
    pub fn span(&self) -> Span {
        Span {
            addr: self.addr,
            bytes: self.size,
        }
    }

    /// The red zone, unless it was lost.
    pub fn intact_zone(&self) -> Option<Span> {
        self.zone.filter(|_| !self.slept.load(Ordering::Acquire))
    }

    #[cfg(test)]
    pub fn for_tests() -> Self {
        Self {
            serial: 1,
            device: DeviceId(0),
            addr: 0x1000,
            size: 512,
            requested: 100,
            stream: StreamKey(0),
            pool: MempoolId::DEFAULT,
            zone: None,
            slept: AtomicBool::new(false),
            allocated: Moment {
                at: Duration::ZERO,
                thread: "t".into(),
                stack: None,
            },
            freed: None,
            reported: AtomicBool::new(false),
        }
    }
}

fn tell(f: &mut fmt::Formatter<'_>, what: &str, moment: &Moment) -> fmt::Result {
    let seconds = moment.at.as_secs_f64();
    write!(f, "\n  {what} after {seconds:.6} s by {}", moment.thread)?;
    if let Some(stack) = &moment.stack {
        f.write_str(", from")?;
        for line in stack.lines() {
            write!(f, "\n    {line}")?;
        }
    }
    f.write_char(' ')
}

/// The block and its life, in several lines.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "block {} at {:#x}: {} requested ({} bytes), {} bytes held, device {}, stream {:#x}",
            self.serial,
            self.addr,
            format_size(self.requested),
            self.requested,
            self.size,
            self.device.0,
            self.stream.0,
        )?;
        if self.pool != MempoolId::DEFAULT {
            write!(f, ", pool ({}, {})", self.pool.first, self.pool.second)?;
        }
        tell(f, "allocated", &self.allocated)?;
        if let Some(freed) = &self.freed {
            tell(f, "freed", freed)?;
        }
        Ok(())
    }
}

/// Live blocks and the last freed ones.
#[derive(Debug, Default)]
pub(super) struct Records {
    live: BTreeMap<usize, Arc<Record>>,
    /// By address: the last block that was freed there.
    past: HashMap<usize, Arc<Record>>,
    /// The order they were freed in.
    order: VecDeque<(usize, u64)>,
    serial: u64,
    /// Addresses of blocks that threads are freeing.
    going: Vec<usize>,
}

impl Records {
    pub fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub fn add(&mut self, record: Arc<Record>) {
        self.live.insert(record.addr, record);
    }

    /// The live block at an address is no longer.
    pub fn take(&mut self, addr: usize) -> Option<Arc<Record>> {
        self.live.remove(&addr)
    }

    /// A thread is to free the block at an address, whose record it gets, if there is one. `None` where another thread is
    /// doing that.
    pub fn begin_free(&mut self, addr: usize) -> Option<Option<Arc<Record>>> {
        let live = self.take(addr);
        if live.is_none() && self.going.contains(&addr) {
            return None;
        }
        self.going.push(addr);
        Some(live)
    }

    /// It has.
    pub fn end_free(&mut self, addr: usize) {
        if let Some(at) = self.going.iter().position(|going| *going == addr) {
            self.going.swap_remove(at);
        }
    }

    /// A block that was freed is remembered; the oldest ones are forgotten.
    pub fn remember(&mut self, record: Arc<Record>) {
        self.order.push_back((record.addr, record.serial));
        self.past.insert(record.addr, record);
        while self.order.len() > MOST_PAST {
            if let Some((addr, serial)) = self.order.pop_front()
                && self.past.get(&addr).is_some_and(|r| r.serial == serial)
            {
                self.past.remove(&addr);
            }
        }
    }

    pub fn live(&self) -> Vec<Arc<Record>> {
        self.live.values().cloned().collect()
    }

    /// The live block at an address.
    pub fn at(&self, addr: usize) -> Option<&Arc<Record>> {
        self.live.get(&addr)
    }

    /// The live block that ends where memory at `addr` begins.
    pub fn before(&self, addr: usize) -> Option<&Arc<Record>> {
        let (_, record) = self.live.range(..addr).next_back()?;
        (record.span().end() == addr).then_some(record)
    }

    /// What is known about an address at which no live block begins.
    pub fn describe(&self, addr: usize) -> String {
        let around = self.live.range(..addr).next_back();
        if let Some((_, record)) = around.filter(|(_, r)| addr < r.span().end()) {
            let offset = addr - record.addr;
            return format!("It points {offset} bytes into a live block.\n{record}");
        }
        let past = self.past.get(&addr).cloned().or_else(|| {
            let inside = |r: &&Arc<Record>| r.addr < addr && addr < r.span().end();
            self.past
                .values()
                .filter(inside)
                .max_by_key(|r| r.serial)
                .cloned()
        });
        match past {
            Some(record) if record.addr == addr => {
                format!("The block was freed before.\n{record}")
            }
            Some(record) => format!(
                "It points {} bytes into a block that was freed before.\n{record}",
                addr - record.addr
            ),
            None => "This allocator has not handed it out, or long ago.".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(addr: usize, serial: u64) -> Arc<Record> {
        Arc::new(Record {
            addr,
            serial,
            ..Record::for_tests()
        })
    }

    #[test]
    fn an_address_is_explained() {
        let mut records = Records::default();
        records.add(record(0x1000, 1));
        records.remember(record(0x2000, 2));
        assert!(
            records
                .describe(0x1010)
                .starts_with("It points 16 bytes into a live block.\nblock 1 ")
        );
        assert!(
            records
                .describe(0x2000)
                .starts_with("The block was freed before.\nblock 2 ")
        );
        assert!(
            records
                .describe(0x2001)
                .starts_with("It points 1 bytes into a block that was freed")
        );
        assert!(records.describe(0x9000).contains("has not handed it out"));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut records = Records::default();
        for serial in 0..MOST_PAST as u64 + 10 {
            records.remember(record(serial as usize * 512, serial));
        }
        assert_eq!(records.past.len(), MOST_PAST);
        assert!(!records.past.contains_key(&0) && records.past.contains_key(&(10 * 512)));
        // A block freed again at an old address stays.
        records.remember(record(10 * 512, 1 << 40));
        records.remember(record(11 * 512, 1 << 41));
        assert!(records.past.contains_key(&(10 * 512)));
    }
}
