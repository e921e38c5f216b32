//! Segments: memory obtained from the driver in one piece, tiled by blocks. Bookkeeping only: pure,
//! depends on ids.

mod table;

pub use table::{Segment, SegmentTable};
