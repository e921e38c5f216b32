//! Tests that need what only this module sees: failures half way, other threads while the lock is released, graphs, what blocks
//! that are kept cost, uses that are taken back.

mod failures;
mod graphs;
mod kept;
pub(super) mod races;
mod uses;
