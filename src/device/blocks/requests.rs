//! Which list serves a request, and which of its free blocks. Pure.

use crate::config::ExpandableSegments;
use crate::device::state::{Request, State};
use crate::ids::{BlockId, PoolId, StreamKey};
use crate::size::SMALL_SIZE;

impl State {
    /// Rounds a request and finds the list that serves it.
    #[inline]
    pub fn request(
        &mut self,
        bytes: usize,
        pad: usize,
        stream: StreamKey,
        pool: PoolId,
    ) -> Request {
        let size = self.settings.round_size(bytes, pad);
        let small = size <= SMALL_SIZE;
        let no_split =
            pool != PoolId::DEFAULT && self.pools.get(pool).is_some_and(|pool| pool.no_split);
        // Where nobody asked for virtual segments, blocks that are never split are segments, which don't merge.
        let asked = self.settings.expandable_segments == ExpandableSegments::On;
        let virtual_memory = self.paging.virtual_memory && (asked || !no_split);
        let own = self.lists.of(pool, stream, small, virtual_memory);
        let list = self.shared_list(pool, small, virtual_memory).unwrap_or(own);
        let guest = self.lists[list].stream != stream;
        Request {
            requested: bytes,
            size,
            stream,
            pool,
            list,
            small,
            no_split,
            virtual_memory,
            guest,
        }
    }

    /// The best free block for the request, still in its list.
    #[inline]
    pub fn find(&self, request: &Request) -> Option<BlockId> {
        if request.guest {
            return self.find_as_guest(request);
        }
        let id = if request.virtual_memory {
            self.find_virtual(request)?
        } else {
            self.lists[request.list].free.best_fit(request.size)?
        };
        let size = self.arena[id].size;
        let max_split = self.settings.max_split_size;
        if request.size < max_split {
            // An oversize block serves oversize requests only.
            return (size < max_split).then_some(id);
        }
        let room = self.settings.max_non_split_rounding_size;
        (size < request.size.saturating_add(room)).then_some(id)
    }
}
