//! Allocation traces of real programs, replayed on the allocator over a simulated device.
//!
//! - [`trace`]: the trace format and its reader.
//! - [`device`]: the simulated device as the allocator's driver.
//! - [`replay`]: one trace on one allocator: what it reserved, what it asked of the driver, how long
//!   the host waited.
//! - [`search`]: the smallest capacity on which a trace completes.

pub mod device;
pub mod replay;
pub mod search;
pub mod trace;
