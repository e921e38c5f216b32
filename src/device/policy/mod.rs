//! How much may be held and how large what is obtained is. Pure; depends on `state`.

pub(super) mod budget;
pub(super) mod large_blocks;
mod page_size;
mod plans;
mod sharded;
mod sizing;
pub(super) mod target;
