//! How large a new fixed segment is.
//!
//! A segment of exactly the size of a request is later split for smaller requests and can then serve no
//! request of its size any more; the more such segments, the more of them are partly in use. So a list that
//! holds much already grows by a part of that: blocks have more neighbours to merge with.

use super::state::{Request, State};
use crate::ids::PoolId;
use crate::size::ROUND_LARGE;

/// Lists that hold less grow by what is requested, as in the stock allocator; bytes.
const FROM: usize = 512 << 20;
/// Lists grow by this part of what they hold. Measured on recorded traces: with 1/12 to 1/16 the smallest
/// capacity that is enough is 3 to 4 % lower on average than with exact segments; with 1/24 or less there are
/// too few neighbours to merge, with 1/8 or more too much is left over.
const PART: usize = 14;
/// The most a list grows by when less is requested, bytes.
const MOST: usize = 2 << 30;
/// Once memory was short this often, the rest of a large segment would be missing elsewhere.
const RETRIES: i64 = 4;

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
            || self.settings.tunes_fixed_segments();
        if exact {
            return size;
        }
        let part = (held / PART).min(MOST);
        size.max(part - part % ROUND_LARGE)
    }
}
