//! Tests that need what only this module sees: failures half way, other threads while the lock is released, graphs, what blocks
//! that are kept cost, what is noted, uses that are taken back.

mod failures;
mod graphs;
mod kept;
mod plans;
pub(super) mod races;
mod uses;
