//! Blocks: the arena they live in, the index of the free ones, the map from address to live block.
//! Pure: no driver; depends on ids, sizes and signals only. Unsafe code is confined to `lazy_array`, which maps
//! host memory, promises that zeroed entries are valid, comparisons of several entries at once (`addr_map`,
//! `size_set`), and hints to the processor.
//!
//! ```text
//! segment  |---------------------------------------------|
//! blocks   |  A live  | B free |   C live   |   D free   |   linked by prev/next, tile the segment
//! index              B ------------------------ D            by size, then address
//! ```

mod addr_map;
mod arena;
mod bitmap;
mod free_index;
mod large_bins;
mod lazy_array;
mod lookups;
mod marks;
mod ordered_bin;
mod prefetch;
mod quick;
mod returns;
mod size_class;
mod size_set;

pub use addr_map::{AddrMap, Place, prefetch_bucket};
pub use arena::{Block, BlockArena, BlockState, CONTEXT, DAMAGED, GUEST, NO_USES, OVERSIZE};
pub use free_index::FreeIndex;
pub use lookups::Lookups;
pub use quick::{Found, Keep, Limits, QuickLists, Slot};
pub use returns::Returns;
