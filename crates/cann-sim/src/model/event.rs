//! An event: a mark on a stream with the time at which the stream passes it.

use std::sync::Arc;

use ascend_rs_sys::{
    ACL_EVENT_CAPTURE_STREAM_PROGRESS, ACL_EVENT_EXTERNAL, ACL_EVENT_IPC, ACL_EVENT_SYNC,
    ACL_EVENT_TIME_LINE,
};
use smallvec::SmallVec;

use super::stream::{Callers, Passing};

/// Events a device has (Atlas A2 and A3).
pub const MAX_EVENTS: u32 = 65_536;

/// When an event is passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// It was never recorded.
    None,
    /// At this time.
    At(u64),
    /// Not known yet: its stream waits for something that may never come.
    Blocked,
    /// It is part of a capture and has no time of its own.
    Captured {
        /// The model.
        model: u64,
        /// The stream it was recorded on.
        stream: u64,
        /// How far that stream had come.
        version: u64,
    },
}

/// The waits of streams for an event.
#[derive(Debug, Clone, Default)]
pub struct Waits {
    /// When all those are over whose time is known.
    until: u64,
    /// Those of other streams, which wait for something else first.
    open: SmallVec<[Passing; 1]>,
}

impl Waits {
    /// Notes a wait that is over at a time.
    pub fn add(&mut self, time: u64) {
        self.until = self.until.max(time);
    }

    /// Notes a wait whose end is not known; it is over when that is set, or when
    /// its stream has dropped it.
    pub fn add_open(&mut self) -> Passing {
        self.settle();
        let over = Passing::default();
        self.open.push(over.clone());
        over
    }

    fn settle(&mut self) {
        let until = &mut self.until;
        self.open.retain(|over| {
            *until = (*until).max(over.get().copied().unwrap_or(0));
            over.get().is_none() && Arc::strong_count(over) > 1
        });
    }

    /// True if all are over.
    pub fn over(&mut self, now: u64) -> bool {
        self.settle();
        self.open.is_empty() && self.until <= now
    }
}

/// An event.
#[derive(Debug, Clone)]
pub struct Event {
    /// Device it belongs to.
    pub device: u32,
    /// `ACL_EVENT_*` flags.
    pub flags: u32,
    /// Made by `aclrtCreateEventExWithFlag`: complete before the first record.
    pub extended: bool,
    /// When it is passed.
    pub mark: Mark,
    /// Number of the latest record, so that a record that is overtaken is dropped.
    pub records: u64,
    /// What a wait for the latest record waits for while its time is not known.
    pub passing: Passing,
    /// Waits of streams for it.
    pub waits: Waits,
    /// Its stream's at the latest record.
    pub callers: Callers,
    /// Captured tasks a wait for the event comes after.
    pub front: SmallVec<[usize; 2]>,
}

impl Event {
    /// An event that was never recorded.
    pub fn new(device: u32, flags: u32, extended: bool) -> Self {
        Event {
            device,
            flags,
            extended,
            mark: Mark::None,
            records: 0,
            passing: Passing::default(),
            waits: Waits::default(),
            callers: Callers::new(),
            front: SmallVec::new(),
        }
    }

    /// True if it takes one of the device's events when it is made. One of the
    /// newer call takes one while a record of it is pending, and there are more
    /// than streams have tasks.
    pub fn takes_one(&self) -> bool {
        let orders = self.flags & (ACL_EVENT_SYNC | ACL_EVENT_EXTERNAL) != 0;
        !self.extended && self.flags != 0xE && orders
    }

    /// True once the stream has passed the latest record. An event that was
    /// never recorded is complete if it was made by the newer call.
    pub fn complete(&self, now: u64) -> bool {
        match self.mark {
            Mark::None => self.extended,
            Mark::At(time) => time <= now,
            Mark::Blocked => false,
            // The capture is over, or the query would have failed.
            Mark::Captured { .. } => true,
        }
    }

    /// True if a stream can wait for it: not if it is to tell progress alone.
    pub fn orders(&self) -> bool {
        self.flags != ACL_EVENT_CAPTURE_STREAM_PROGRESS
    }

    /// True if it keeps times. Flags of 0xE ("default") do as well.
    pub fn timed(&self) -> bool {
        self.flags & ACL_EVENT_TIME_LINE != 0
    }

    /// True if another process may open it.
    pub fn shared(&self) -> bool {
        self.flags & ACL_EVENT_IPC != 0
    }

    /// True if a captured graph may record or wait for it from outside.
    pub fn external(&self) -> bool {
        self.flags & ACL_EVENT_EXTERNAL != 0 && self.flags != 0xE
    }
}
