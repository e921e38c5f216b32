//! A simulated CANN runtime: everything an allocator of device memory can see
//! of an Ascend NPU, on a machine without one.
//!
//! Rooms, from the bottom:
//! - [`model`]: the device as a pure state machine: memory, virtual memory,
//!   streams on a virtual clock, events, capture, errors, costs. No `unsafe`,
//!   no globals, no I/O.
//! - [`backing`]: what stands behind an address: nothing, or real pages.
//! - [`ops`]: operators as far as they compute.
//! - [`process`]: the one simulator of a process, its lock, and what belongs to
//!   a thread (current device, capture mode, last error).
//! - [`host_calls`]: functions of the host that streams call, and their threads.
//! - [`ipc`]: what processes tell each other about shared memory.
//! - [`report`]: the report at exit.
//! - [`ffi`]: the exported C functions by topic; thin.
//!
//! Each may use the rooms above it in this list.
//!
//! A Rust program can be its own machine ([`Sim`], any number of them), or link
//! this crate and call the exported functions; then [`process::sim`] gives the
//! one simulator behind them, with its counts:
//!
//! ```
//! use ascendcl::{model::cost::CallKind, process, report};
//!
//! assert_eq!(ascendcl::ffi::device::aclrtSetDevice(0), 0);
//! let sim = process::sim();
//! assert_eq!(sim.devices[0].ledger.call(CallKind::SetDevice).count, 1);
//! let report = report::device(&sim, 0);
//! assert_eq!((report.driver_calls, report.host_wait_ns), (1, 0));
//! ```
//!
//! The guard is the simulator's lock: drop it before the next call.

pub mod backing;
pub mod ffi;
pub mod host_calls;
pub mod ipc;
pub mod model;
pub mod ops;
pub mod process;
pub mod report;

pub use model::config::{Config, Mode};
pub use model::sim::Sim;
