//! Allocation traces of real programs, replayed on the allocator over a simulated device.
//!
//! Without dependencies on the allocator:
//!
//! - [`trace`]: the trace format and its reader.
//! - [`synthetic`]: a made-up training run as a trace.
//! - [`cases`]: allocation problems with known lifetimes: read, made up, turned into traces.
//! - [`packing`]: offline placement of blocks whose lifetimes are known: what no
//!   allocator without virtual memory can beat.
//! - [`quantity`]: sizes as people write them.
//!
//! With the feature `core` (default), the Rust core alone, without torch_npu:
//!
//! - [`device`]: the simulated device as the allocator's driver.
//! - [`marks`]: the places of the trace that it waits for later.
//! - [`pools`]: the trace's private pools in that allocator.
//! - [`replay`]: one trace on one allocator: what it reserved, what it asked of the driver, how long
//!   the host waited.
//! - [`search`]: the smallest capacity on which a trace completes.

pub mod cases;
#[cfg(feature = "core")]
pub mod device;
#[cfg(feature = "core")]
pub mod marks;
pub mod packing;
#[cfg(feature = "core")]
pub mod pools;
pub mod quantity;
#[cfg(feature = "core")]
pub mod replay;
#[cfg(feature = "core")]
mod run;
#[cfg(feature = "core")]
pub mod search;
pub mod synthetic;
pub mod trace;
