//! What a request climbs that the cache does not serve, from completed events to out of memory, and what gives memory back.
//! Depends on all folders beside it but `check`.

mod allocate;
mod climb;
mod engine;
mod gc;
pub(super) mod growth;
mod reclaim;
mod transit;
