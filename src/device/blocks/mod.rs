//! What happens to a block and to a segment, whatever it is made of. Pure; depends on `state`.

mod alignment;
pub(super) mod guests;
mod requests;
mod returning;
mod segments;
mod transitions;
mod virtual_blocks;
