//! When freed memory may be used again, and by which stream. Depends on `blocks` and `policy`.

mod events;
mod fencing;
mod free;
mod lending;
mod order;
mod overtake;
mod shared;
pub(super) mod waiting;
