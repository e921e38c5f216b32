//! Requests that are served from cache, and frees, while nothing else goes on; blocks leased to threads that would wait for
//! each other. No driver call, no heap allocation. Depends on `state`, `transitions`, `policy`, and on the search of `paging`
//! for the best free block of virtual segments.

mod bounce;
pub(super) mod cache;
mod crowd;
mod freeing;
mod guarded;
mod leasing;
mod noted;
mod quick;
mod recall;
mod serve;
pub(super) mod threads;
mod unread;
