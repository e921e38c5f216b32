//! The one error type. A driver's code is kept, never swallowed.

use crate::driver::DriverError;
use crate::ids::{DeviceId, MempoolId};

/// Why a call failed. The texts are the ones users of the stock allocator search for.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AllocError {
    /// No room, after everything reclaimable went back. The report holds the full text.
    #[error("{}", .0.message)]
    OutOfMemory(Box<OomReport>),
    /// Refused by policy before asking the driver.
    #[error(
        "NPU out of memory. Allocation was preemptively rejected because it would exceed \
         per_process_memory_fraction limit. Requested size: {}",
        crate::device::format_size(.0.requested)
    )]
    Rejected(Box<OomReport>),
    /// The address is not a live allocation of this allocator.
    #[error("invalid device pointer: {addr:#x}")]
    InvalidPointer {
        /// The address as given.
        addr: usize,
    },
    /// As [`Self::InvalidPointer`], with what the debug mode knows of the address.
    #[error("invalid device pointer: {addr:#x}\n{history}")]
    ExplainedPointer {
        /// The address as given.
        addr: usize,
        /// What the address was.
        history: String,
    },
    /// The debug mode found that memory was written which should not have been.
    #[error("npualloc: {text}")]
    Damage {
        /// What was written, and the blocks concerned.
        text: String,
    },
    /// The device index is out of range, or `init` was not called for it.
    #[error("Invalid device argument {device}: did you call init?")]
    InvalidDevice {
        /// The index as given.
        device: i64,
    },
    /// A memory fraction outside [0, 1].
    #[error("invalid fraction:{fraction}. Please set within [0, 1].")]
    InvalidFraction {
        /// The value as given.
        fraction: f64,
    },
    /// No private pool of this name.
    #[error("Could not find pool of id ({}, {})", .pool.first, .pool.second)]
    UnknownPool {
        /// The name as given.
        pool: MempoolId,
    },
    /// A call that the pool's state does not allow.
    #[error("{what} ({}, {})", .pool.first, .pool.second)]
    PoolState {
        /// What is wrong.
        what: &'static str,
        /// The pool.
        pool: MempoolId,
    },
    /// `mark_capture_end` without a capture under way.
    #[error("markCaptureEnd: no capture is under way on device {}", .device.0)]
    NoCapture {
        /// The device.
        device: DeviceId,
    },
    /// What a pool that sleeps, or is to, does not allow.
    #[error("{what} {}", .device.0)]
    Sleep {
        /// What is wrong, up to the device's number.
        what: &'static str,
        /// The device.
        device: DeviceId,
    },
    /// A configuration string that can't be accepted.
    #[error("{0}")]
    Config(#[from] crate::config::ConfigError),
    /// The driver failed.
    #[error("{0}")]
    Driver(#[from] DriverError),
    /// A call panicked while it changed the device's bookkeeping.
    #[error(
        "device {} is poisoned: the allocator panicked while it changed its bookkeeping ({panic}), which can't be relied \
         on any more. It hands out no memory of this device, and takes none back; memory in use stays as it is. Save what is \
         needed and restart the process. This is a bug in npualloc: please report it.",
        .device.0
    )]
    Poisoned {
        /// The device.
        device: DeviceId,
        /// What the first panic said.
        panic: String,
    },
    /// An invariant does not hold: a bug in the allocator.
    #[error("internal error: {0}")]
    Internal(String),
}

/// What is known at the moment memory ran out. Sizes in bytes.
#[derive(Debug, Clone)]
pub struct OomReport {
    /// The device that is full.
    pub device: DeviceId,
    /// What the client asked for.
    pub requested: usize,
    /// What the driver was asked for.
    pub alloc_size: usize,
    /// The configured limit, where one is set.
    pub limit: Option<usize>,
    /// The device's capacity.
    pub device_total: usize,
    /// Free on the device, as the driver reports it.
    pub device_free: usize,
    /// Held by live allocations.
    pub allocated: usize,
    /// Held by segments.
    pub reserved: usize,
    /// The driver's error code.
    pub code: i32,
    /// The driver had memory, but no addresses left to map it at.
    pub addresses_short: bool,
    /// The complete text.
    pub message: String,
}

/// Shorthand.
pub type Result<T> = std::result::Result<T, AllocError>;
