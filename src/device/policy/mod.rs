//! How much may be held and how large what is obtained is. Pure; depends on `state`, and on `paging` for what can move.

pub(super) mod budget;
mod fullness;
mod page_size;
mod sizing;
pub(super) mod target;
