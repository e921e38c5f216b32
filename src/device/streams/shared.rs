//! The large blocks of all streams in one list, once streams need memory by turns: a block that one has freed serves
//! another, which waits for the first on the device, and no memory has to move. Pure.
//!
//! The list is the one of the stream that held most, the home. What is free in it is free for the home; another
//! stream gets it as a guest ([`guests`](crate::device::blocks::guests)), ordered behind the home's last use. What a guest has freed is free
//! for that guest at once, for the home when it is ordered behind the guest.

use crate::block::BlockState;
use crate::config::ExpandableSegments;
use crate::device::policy::target::MIN_SLACK;
use crate::device::state::{Request, State};
use crate::ids::{BlockId, ListId, PoolId, SegmentId, StreamKey};
use crate::page::LastUse;
use crate::pool::FreeList;
use crate::segment::Segment;

impl State {
    /// Whether a free block is what it was before the lock was released, and a guest may have it.
    pub(super) fn is_still(&self, id: BlockId, addr: usize, request: &Request) -> bool {
        self.arena.holds_free(id, addr, request.size)
            && self.arena[id].list == request.list
            && self.fences.is_over_for(request.stream, self.last_use(id))
    }

    /// The smallest block that is large enough for a guest, once it has waited.
    fn find_in_use(&self, request: &Request) -> Option<BlockId> {
        let free = self.lists[request.list].free.best_fit(request.size);
        let align = self.settings.base_addr_aligned_size.max(1);
        let returning = self.guests.returning.iter().map(|(id, _)| id);
        let fit = returning.filter(|&id| {
            let block = &self.arena[id];
            block.list == request.list
                && block.size >= request.size
                && block.addr.is_multiple_of(align)
        });
        free.into_iter()
            .chain(fit)
            .min_by_key(|&id| (self.arena[id].size, self.arena[id].addr))
    }

    /// Which stream must wait for which last use, so that a request can be served without new memory: the guest for
    /// that of the block it will get; the home for that of a block that makes a hole large enough.
    pub(super) fn wait_for_request(&self, request: &Request) -> Option<(StreamKey, LastUse)> {
        if request.guest
            && let Some(id) = self.find_in_use(request)
        {
            return Some((request.stream, self.last_use(id)));
        }
        let home = self.lists[request.list].stream;
        let returning = self.guests.returning.iter();
        let best = returning
            .filter(|&(id, _)| self.arena[id].list == request.list)
            .filter_map(|(id, used)| {
                let hole = self.hole_around(id);
                (hole >= request.size).then_some((hole, used.tick, used))
            })
            .min_by_key(|&(hole, tick, _)| (hole, tick))?;
        Some((home, best.2))
    }

    /// Bytes in a row, around a block that is to return, that would be free once all such blocks have returned.
    fn hole_around(&self, id: BlockId) -> usize {
        let usable = |id: &BlockId| {
            let state = self.arena[*id].state;
            matches!(state, BlockState::Free | BlockState::Returning)
        };
        let mut bytes = self.arena[id].size;
        let mut next = self.arena[id].next.some().filter(usable);
        while let Some(id) = next {
            bytes += self.arena[id].size;
            next = self.arena[id].next.some().filter(usable);
        }
        let mut prev = self.arena[id].prev.some().filter(usable);
        while let Some(id) = prev {
            bytes += self.arena[id].size;
            prev = self.arena[id].prev.some().filter(usable);
        }
        bytes
    }

    /// Whether large blocks should be in one list from now on, rather than move memory for a request that free memory
    /// of other streams could serve.
    pub(super) fn should_share(&self, request: &Request) -> bool {
        let asked = self.settings.expandable_segments == ExpandableSegments::On;
        let may = request.virtual_memory
            && !request.small
            && self.guests.shared.is_none()
            && self.captures == 0
            && self.busy == 0
            && self.may_be_guest(request);
        let often = asked && self.budget.moved > MIN_SLACK;
        let helps = self.guests.share_eagerly
            || (self.is_full(request) || often) && self.moves_memory(request);
        may && helps && self.others_could_serve(request)
    }

    /// Whether another stream has enough free, all in all.
    fn others_could_serve(&self, request: &Request) -> bool {
        let enough = |list: &FreeList| list.free.bytes(&self.arena) >= request.size;
        self.others_to_share(request.list)
            .any(|(_, list)| enough(list) || self.guests.share_eagerly)
    }

    /// The lists of large blocks beside one.
    pub(in crate::device) fn others_to_share(
        &self,
        but: ListId,
    ) -> impl Iterator<Item = (ListId, &FreeList)> + '_ {
        self.lists.iter().filter(move |(id, list)| {
            *id != but
                && id.is_virtual()
                && !id.is_small()
                && list.pool == PoolId::DEFAULT
                && list.ranges > 0
        })
    }

    /// The list that holds most, and the others.
    pub(super) fn lists_to_share(&self) -> Option<(ListId, Vec<ListId>)> {
        let all: Vec<ListId> = self
            .others_to_share(ListId::NONE)
            .map(|(id, _)| id)
            .collect();
        let held = |list: ListId| -> usize {
            let tables = self
                .segments
                .iter()
                .filter(|(_, segment)| self.arena[segment.first].list == list);
            let pages = tables.filter_map(|(_, segment)| segment.pages.as_ref());
            pages.map(|pages| pages.mapped_bytes()).sum()
        };
        let home = all.iter().copied().max_by_key(|&list| held(list))?;
        Some((home, all.into_iter().filter(|&list| list != home).collect()))
    }

    /// Makes the blocks of other lists the home's, whose stream waits for theirs. False, and nothing changed, where a
    /// mapping was left behind since.
    pub(super) fn share_lists(&mut self, home: ListId, others: &[ListId]) -> bool {
        let at_home = self.lists[home].stream;
        let theirs =
            |(_, segment): &(SegmentId, &Segment)| others.contains(&self.arena[segment.first].list);
        let segments: Vec<(SegmentId, &Segment)> = self.segments.iter().filter(theirs).collect();
        let late = segments.iter().any(|(_, segment)| {
            let upto = self.fences.ordered(at_home, segment.stream);
            let mut stale = segment.pages.iter().flat_map(|pages| pages.stale_pages());
            stale.any(|(_, stale)| stale.tick > upto)
        });
        if late {
            return false;
        }
        let segments: Vec<SegmentId> = segments.into_iter().map(|(id, _)| id).collect();
        // Later than every event of the home's that was recorded before it waited.
        self.tick += 1;
        let tick = self.tick;
        for id in segments {
            if let Some(segment) = self.segments.get_mut(id) {
                segment.stream = at_home;
                if let Some(pages) = &mut segment.pages {
                    pages.stale_used_at(tick);
                }
            }
        }
        let blocks: Vec<BlockId> = self
            .arena
            .iter()
            .filter(|(_, block)| others.contains(&block.list))
            .map(|(id, _)| id)
            .collect();
        for id in blocks {
            self.adopt(id, home);
        }
        for &other in others {
            let list = &mut self.lists[other];
            let (ranges, least) = (std::mem::take(&mut list.ranges), list.least_page);
            let unmapped = std::mem::take(&mut list.unmapped);
            let list = &mut self.lists[home];
            list.ranges += ranges;
            list.least_page = list.least_page.min(least);
            list.unmapped.extend(unmapped);
        }
        self.guests.shared = Some(home);
        true
    }

    /// Makes a block of another list the home's.
    fn adopt(&mut self, id: BlockId, home: ListId) {
        let (list, state) = (self.arena[id].list, self.arena[id].state);
        let (stream, at_home) = (self.lists[list].stream, self.lists[home].stream);
        match state {
            BlockState::Live | BlockState::Pending => {
                let user = self.stream_of(id);
                if user == at_home {
                    self.forget_guest(id);
                } else {
                    self.note_guest(id, user);
                }
                self.arena[id].list = home;
            }
            BlockState::Free => {
                let tick = self.freed_at(id);
                self.lists[list].free.remove(&mut self.arena, id);
                self.arena[id].list = home;
                if tick <= self.fences.ordered(at_home, stream) {
                    self.arena[id].state = BlockState::Pending;
                    self.return_to_list(id, home);
                } else {
                    self.put_returning(id, LastUse { stream, tick });
                }
            }
            _ => self.arena[id].list = home,
        }
    }
}
