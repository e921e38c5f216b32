//! What is said of memory: blocks, snapshots, the report of a request that found none. Reads `state`, changes nothing.

mod explain;
mod info;
mod report;
mod share;
mod snapshot;

pub use info::BlockView;
pub use report::format_size;
pub use share::PageView;
pub use snapshot::{BlockInfo, SegmentInfo};
