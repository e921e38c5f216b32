//! What lies at the place that a plan has for a block. Pure.

use std::sync::Arc;

use super::site::Site;
use crate::block::BlockState;
use crate::device::paging::Window;
use crate::device::state::{Request, State};
use crate::history::Context;
use crate::ids::BlockId;
use crate::plan::Place;

/// Blocks that are looked at to find the one at an address.
const MOST_LOOKS: usize = 4096;
/// The same on the hot path.
const FEW_LOOKS: usize = 16;

/// What is at a place.
#[derive(Debug, Clone, Copy)]
pub(super) enum Found {
    /// A free block that holds it.
    Free(BlockId),
    /// Free blocks, and addresses without memory.
    Unmapped(Window),
    /// A block that waits for events.
    Pending(BlockId),
    /// Blocks that are to return to the list.
    Returning,
    /// One in use, or none that is known.
    Taken,
}

impl State {
    /// The block at the place of a request that the plan expects next, if it is free for its own stream, and where it begins
    /// there. Not for the first request of a period, with which the plan itself is looked at.
    pub(in crate::device) fn expected_at(&self, request: &Request) -> Option<(BlockId, usize)> {
        if request.guest || !self.may_plan() {
            return None;
        }
        let place = self.expected_place(request)?;
        let site = self.site()?;
        let addr = site.addr + place.offset;
        let found = self.block_at(site, addr, place.below, FEW_LOOKS)?;
        let is_free = self.arena.holds_free(found, addr, request.size);
        is_free.then_some((found, addr))
    }

    /// What is at a place for a request.
    pub(super) fn found_at(&self, site: Site, place: Place, request: &Request) -> Found {
        let addr = site.addr + place.offset;
        let end = addr + request.size;
        let Some(first) = self.block_at(site, addr, place.below, MOST_LOOKS) else {
            return Found::Taken;
        };
        if self.arena.holds_free(first, addr, request.size) {
            return Found::Free(first);
        }
        let (mut next, mut last) = (Some(first), 0);
        let mut waits = None;
        while let Some(id) = next.filter(|_| last < end) {
            let block = &self.arena[id];
            match block.state {
                BlockState::Free | BlockState::Unmapped => (),
                BlockState::Pending => waits = Some(Found::Pending(id)),
                BlockState::Returning => waits = waits.or(Some(Found::Returning)),
                _ => return Found::Taken,
            }
            (last, next) = (block.end(), block.next.some());
        }
        if last < end {
            return Found::Taken;
        }
        let window = || {
            self.window_at(first, addr, end)
                .map_or(Found::Taken, Found::Unmapped)
        };
        waits.unwrap_or_else(window)
    }

    /// The block that holds an address of a range, of the first `looks` from one that should lie before it, where there is
    /// one. `below`: where that begins in the range.
    fn block_at(
        &self,
        site: Site,
        addr: usize,
        below: Option<usize>,
        looks: usize,
    ) -> Option<BlockId> {
        let segment = self.segments.get(site.segment)?;
        let below = below.and_then(|below| self.live.get(site.addr + below, &self.arena));
        let below = below.filter(|&id| self.arena[id].segment == site.segment);
        let mut next = Some(below.unwrap_or(segment.first));
        for _ in 0..looks {
            let block = &self.arena[next?];
            if addr < block.end() {
                return next;
            }
            next = block.next.some();
        }
        None
    }

    /// The window that gives memory to the addresses from `addr` to `end`, which are free or unmapped.
    fn window_at(&self, first: BlockId, addr: usize, end: usize) -> Option<Window> {
        let (block, pages) = (&self.arena[first], self.pages_of(first)?);
        let start = if block.state == BlockState::Unmapped {
            pages.addr_of(pages.page_of(addr))
        } else {
            block.addr
        };
        Some(Window::at(first, start, end - start))
    }

    /// Hands out the part of a free block that begins at `addr`. Returns that.
    pub(in crate::device) fn hand_out_at(
        &mut self,
        id: BlockId,
        addr: usize,
        request: &Request,
        context: Option<Arc<Context>>,
    ) -> usize {
        debug_assert!(!request.guest || self.fences.is_over_for(request.stream, self.last_use(id)));
        let list = self.arena[id].list;
        self.lists[list].free.remove(&mut self.arena, id);
        let offset = addr - self.arena[id].addr;
        let id = self.leave_front(id, list, offset);
        let id = self.leave_end(id, list, request.size);
        self.ladder.blocks_planned += 1;
        if request.guest {
            self.make_guest(id, request, &context)
        } else {
            self.make_live(id, request, context)
        }
    }
}
