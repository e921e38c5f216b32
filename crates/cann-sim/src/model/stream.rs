//! A stream: tasks in order, each with the time at which it completes.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::capture::TaskGroup;
use super::condition::Branch;
use super::work::{Access, Accesses, Work};

/// A task that has not been seen to complete.
#[derive(Debug, Clone)]
pub struct Pending {
    /// When it starts.
    pub start: u64,
    /// When it completes.
    pub end: u64,
    /// What it touches.
    pub accesses: Accesses,
    /// Its name.
    pub name: &'static str,
}

/// Streams that call functions of the host which a wait has to wait for.
pub type Callers = SmallVec<[u64; 1]>;

/// When a stream passes a record, once that is known.
pub type Passing = Arc<OnceLock<u64>>;

/// What a stream is asked to do, kept while the stream cannot go on.
#[derive(Debug, Clone)]
pub enum Command {
    /// A task.
    Work(Work),
    /// A mark: the event and the number of the record.
    Record {
        /// The event.
        event: u64,
        /// The event's count of records when this one was made.
        record: u64,
        /// For those that wait for this record, whatever becomes of the event.
        passing: Passing,
    },
    /// Wait for a record of an event.
    Wait {
        /// When the record is passed.
        passing: Passing,
        /// When the wait is over.
        over: Passing,
    },
    /// Wait for a value in memory.
    WaitValue {
        /// Where.
        addr: u64,
        /// What it is compared with.
        value: u64,
        /// `ACL_STREAM_WAIT_VALUE_*`.
        flag: u32,
    },
    /// A conditional task of a replay.
    Branch(Arc<Branch>),
}

/// A stream.
#[derive(Debug)]
pub struct Stream {
    /// Device it belongs to.
    pub device: u32,
    /// Number that `aclrtStreamGetId` gives.
    pub id: i32,
    /// Time at which all its tasks are complete.
    pub tail: u64,
    /// Tasks that may not be complete, oldest first.
    pub pending: VecDeque<Pending>,
    /// Commands that wait for something of unknown time.
    pub blocked: VecDeque<Command>,
    /// The model this stream is being captured into.
    pub capture: Option<u64>,
    /// The task group whose tasks this stream's replace, and the next of them.
    pub update: Option<(TaskGroup, usize)>,
    /// Whether a float overflow is checked for.
    pub overflow: u32,
    /// Thread that handles its callbacks.
    pub report_thread: Option<u64>,
    /// Itself, if it calls functions of the host, and what it has waited for.
    pub callers: Callers,
}

impl Stream {
    /// An empty stream.
    pub fn new(device: u32, id: i32) -> Self {
        Stream {
            device,
            id,
            tail: 0,
            pending: VecDeque::new(),
            blocked: VecDeque::new(),
            capture: None,
            update: None,
            overflow: 0,
            report_thread: None,
            callers: Callers::new(),
        }
    }

    /// True if all that was put on it has completed.
    pub fn idle(&self, now: u64) -> bool {
        self.tail <= now && self.blocked.is_empty()
    }

    /// Forgets tasks at the front that have completed.
    pub fn forget_completed(&mut self, now: u64) {
        while self.pending.front().is_some_and(|task| task.end <= now) {
            self.pending.pop_front();
        }
    }

    /// The first task that is not complete and touches a range.
    pub fn user_of(&self, now: u64, addr: u64, len: u64) -> Option<&'static str> {
        if self.tail > now {
            let touching = |access: &Access| access.overlaps(addr, len);
            let task = self
                .pending
                .iter()
                .filter(|task| task.end > now)
                .find(|task| task.accesses.iter().any(touching));
            if let Some(task) = task {
                return Some(task.name);
            }
        }
        self.blocked.iter().find_map(|command| match command {
            Command::Work(work) => work
                .accesses
                .iter()
                .any(|access| access.overlaps(addr, len))
                .then_some(work.name),
            &Command::WaitValue { addr: at, .. } => Access { addr: at, len: 8 }
                .overlaps(addr, len)
                .then_some("aclrtValueWait"),
            Command::Branch(branch) => branch.user_of(addr, len),
            _ => None,
        })
    }

    /// Time at which there is room for another task, given at most `depth`.
    pub fn room_at(&self, now: u64, depth: usize) -> u64 {
        if self.pending.len() < depth {
            now
        } else {
            self.pending[self.pending.len() - depth].end
        }
    }
}
