//! How large a new fixed segment is.
//!
//! A segment of exactly the size of a request is later split for smaller requests and can then serve no
//! request of its size any more; the more such segments, the more of them are partly in use. So a list that
//! holds much already, and lacks nothing but one piece that is large enough, grows by a part of what it holds: blocks
//! have more neighbours to merge with. A list that really needs more grows by what is requested: what is left over of
//! larger segments might never be used. What is free in segments that are idle as a whole says nothing: these can go
//! back to the driver, which a large segment partly in use can't. Lists of sharded programs grow by
//! what is requested, too: most of them need less memory so (`docs/experiments-memory.md`, *Sharded programs once more*).

use crate::config::Rung;
use crate::device::state::{Request, State};
use crate::ids::PoolId;

/// Lists that hold less grow by what is requested, as in the stock allocator; bytes.
const FROM: usize = 6 << 30;
/// Lists grow by up to this part of what they hold.
const PART: usize = 14;
/// At least so much of a new segment must be free in pieces, in quarters. With these numbers the smallest capacity that
/// is enough is, on 25 recorded programs, 1.074 times what is live on average, with exact segments 1.100, and on one more
/// than with exact ones, by 1 %; when half as much again as a request lacked was enough, with lists of 4 GiB and segments
/// idle as a whole, it was 1.093, and more on eight, by up to 44 % (`docs/experiments-memory.md`, *Fixed segments*).
const QUARTERS_FREE: usize = 3;
/// The most a list grows by when less is requested, bytes.
const MOST: usize = 1 << 30;
/// The most requests of the size that needs it a segment has room for: a small one opens no large segment.
const TIMES: usize = 24;
/// Once memory was short this often, the rest of a large segment would be missing elsewhere.
const RETRIES: u64 = 8;

impl State {
    /// The size to try for a new segment; `size` is what the request needs at least.
    pub(in crate::device) fn ample_segment(&self, request: &Request, size: usize) -> usize {
        let held = self.lists[request.list.fixed()].held;
        let exact = request.small
            || request.no_split
            || request.pool != PoolId::DEFAULT
            || held < FROM
            || self.is_sharded()
            || self.budget.device_full
            || self.budget.shortages >= RETRIES
            || self.settings.tunes_fixed_segments()
            || self.settings.skipped_rungs.has(Rung::AmpleSegments);
        if exact {
            return size;
        }
        // A multiple of the request: where all are alike nothing is left over.
        let part = (held / PART).min(MOST);
        let ample = size * (part / size).clamp(1, TIMES);
        if ample > size && self.free_in_pieces(request) >= ample / 4 * QUARTERS_FREE {
            ample
        } else {
            size
        }
    }

    /// Free bytes of a request's list in segments partly in use.
    fn free_in_pieces(&self, request: &Request) -> usize {
        let free = self.lists[request.list.fixed()].free.iter(&self.arena);
        free.map(|id| &self.arena[id])
            .filter(|block| block.is_split())
            .map(|block| block.size)
            .sum()
    }
}
