//! When freed memory may be used again, and by which stream. Depends on `state`, `transitions`, `policy`, and on `paging` for
//! the pages of a block.

mod events;
mod fencing;
mod free;
pub(super) mod guest;
mod order;
mod overtake;
mod returning;
mod shared;
pub(super) mod waiting;
