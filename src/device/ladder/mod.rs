//! What a request climbs that the cache does not serve, from completed events to out of memory. Depends on all folders above it
//! in the list of `device`.

mod allocate;
mod climb;
mod engine;
mod transit;
