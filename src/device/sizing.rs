//! How large a new fixed segment is.
//!
//! A segment of exactly the size of a request is later split for smaller requests and can then serve no
//! request of its size any more; the more such segments, the more of them are partly in use. So a list that
//! holds much already, and lacks nothing but one piece that is large enough, grows by a part of what it holds: blocks
//! have more neighbours to merge with. A list that really needs more grows by what is requested: what is left over of
//! larger segments might never be used.

use super::state::{Request, State};
use crate::config::Rung;
use crate::ids::PoolId;

/// Lists that hold less grow by what is requested, as in the stock allocator; bytes.
const FROM: usize = 4 << 30;
/// Lists grow by up to this part of what they hold. With these numbers the smallest capacity that is enough is, on
/// four recorded traces and eight made-up ones, 1.095 times what is live on average, and what is reserved with ample
/// memory is on none more than exact segments reserve; with those the least is 1.122. When lists of 512 MiB began
/// and free memory was not looked at, the least was 1.103, but up to 7 % more than the stock allocator's.
const PART: usize = 14;
/// The most a list grows by when less is requested, bytes.
const MOST: usize = 1 << 30;
/// The most requests of the size that needs it a segment has room for: a small one opens no large segment.
const TIMES: usize = 24;
/// Once memory was short this often, the rest of a large segment would be missing elsewhere.
const RETRIES: i64 = 8;

impl State {
    /// The size to try for a new segment; `size` is what the request needs at least.
    pub(super) fn ample_segment(&self, request: &Request, size: usize) -> usize {
        let list = &self.lists[request.list.fixed()];
        let held = list.held;
        let exact = request.small
            || request.no_split
            || request.pool != PoolId::DEFAULT
            || held < FROM
            || self.device_full
            || self.stats.num_alloc_retries >= RETRIES
            || self.settings.tunes_fixed_segments()
            || self.settings.skipped_rungs.has(Rung::AmpleSegments);
        // Half as much again must be free, in pieces.
        if exact || list.free.bytes(&self.arena) < size + size / 2 {
            return size;
        }
        // A multiple of the request: where all are alike nothing is left over.
        let part = (held / PART).min(MOST);
        size * (part / size).clamp(1, TIMES)
    }
}
