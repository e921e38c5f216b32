//! What is put on a stream: how long it takes, what memory it touches, and what
//! it does when its time has come.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

/// A range of addresses a task reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// First byte.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
}

impl Access {
    /// True if the two ranges share a byte.
    pub fn overlaps(&self, addr: u64, len: u64) -> bool {
        self.addr < addr.saturating_add(len) && addr < self.addr.saturating_add(self.len)
    }
}

/// The ranges of one task; most have few.
pub type Accesses = SmallVec<[Access; 4]>;

/// An operator that computes.
pub trait Kernel: Send + Sync {
    /// Does the work. All ranges the task named are mapped when this is called.
    fn run(&self);
}

/// What a task does to data or to the host when it completes.
#[derive(Clone)]
pub enum Action {
    /// Copies bytes.
    Copy {
        /// Destination.
        dst: u64,
        /// Source.
        src: u64,
        /// Bytes.
        len: u64,
    },
    /// Sets every byte.
    Fill {
        /// First byte.
        dst: u64,
        /// The value of each byte.
        value: u8,
        /// Bytes.
        len: u64,
    },
    /// Writes a 64-bit value that a stream may wait for.
    WriteValue {
        /// Where.
        addr: u64,
        /// What.
        value: u64,
    },
    /// Runs an operator.
    Compute(Arc<dyn Kernel>),
    /// Hands a function to a host thread.
    Host(HostCall),
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Copy { dst, src, len } => write!(f, "copy {src:#x}..+{len:#x} to {dst:#x}"),
            Action::Fill { dst, value, len } => write!(f, "fill {dst:#x}..+{len:#x} with {value}"),
            Action::WriteValue { addr, value } => write!(f, "write {value} to {addr:#x}"),
            Action::Compute(_) => f.write_str("compute"),
            Action::Host(call) => write!(f, "host call {call:?}"),
        }
    }
}

/// A function of the host that a stream calls. The model only passes it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostCall {
    /// The function's address.
    pub function: usize,
    /// Its argument.
    pub argument: usize,
    /// Thread that asked for the stream's callbacks; none for a thread of the runtime.
    pub thread: Option<u64>,
    /// The stream that calls it.
    pub stream: u64,
}

/// One task.
#[derive(Debug, Clone, Default)]
pub struct Work {
    /// How long it takes on the device.
    pub nanoseconds: u64,
    /// What it touches.
    pub accesses: Accesses,
    /// What it does at its end.
    pub action: Option<Action>,
    /// The operator's or call's name, for hazards.
    pub name: &'static str,
}
