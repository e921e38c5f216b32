//! Requests that are served from cache, and frees, while nothing else goes on; blocks leased to threads that would wait for
//! each other. No driver call, no heap allocation. Depends on `blocks`, `policy`,
//! `streams` for frees that have more to do, and `planning` for what is expected.

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
