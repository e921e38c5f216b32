//! How large a new fixed segment is.
//!
//! A segment of exactly the size of a request is later split for smaller requests and can then serve no
//! request of its size any more; the more such segments, the more of them are partly in use. So a list that
//! holds much already grows by a part of that: blocks have more neighbours to merge with.

use super::state::{Request, State};
use crate::config::Rung;
use crate::ids::PoolId;

/// Lists that hold less grow by what is requested, as in the stock allocator; bytes.
const FROM: usize = 512 << 20;
/// Lists grow by up to this part of what they hold. Measured on four recorded traces: the smallest capacity that
/// is enough is 1.04 to 1.14 times what is live, 1.07 on average, against 1.04 to 1.25 and 1.13 with exact
/// segments. With 1/10, 1/12 and 1/16 it is 1.03 to 1.15, but more than exact segments reserve on one of them.
const PART: usize = 14;
/// The most a list grows by when less is requested, bytes.
const MOST: usize = 2 << 30;
/// The most requests of the size that needs it a segment has room for: a small one opens no large segment. With 16
/// and without this limit the least capacities are 1.08 on average.
const TIMES: usize = 24;
/// Once memory was short this often, the rest of a large segment would be missing elsewhere.
const RETRIES: i64 = 8;

impl State {
    /// The size to try for a new segment; `size` is what the request needs at least.
    pub(super) fn ample_segment(&self, request: &Request, size: usize) -> usize {
        let held = self.lists[self.lists.fixed_beside(request.list)].held;
        let exact = request.small
            || request.no_split
            || request.pool != PoolId::DEFAULT
            || held < FROM
            || self.device_full
            || self.stats.num_alloc_retries >= RETRIES
            || self.settings.tunes_fixed_segments()
            || self.settings.skipped_rungs.has(Rung::AmpleSegments);
        if exact {
            return size;
        }
        // A multiple of the request: where all are alike nothing is left over.
        let part = (held / PART).min(MOST);
        size * (part / size).clamp(1, TIMES)
    }
}
