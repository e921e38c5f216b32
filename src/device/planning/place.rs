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
    /// What is at a place for a request.
    pub(super) fn found_at(&self, site: Site, place: Place, request: &Request) -> Found {
        let addr = site.addr + place.offset;
        let end = addr + request.size;
        let below = place.below.map(|offset| site.addr + offset);
        let Some(first) = self.block_at(site, addr, below) else {
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

    /// The block that holds an address of a range. `below`: where one begins that should lie before it.
    fn block_at(&self, site: Site, addr: usize, below: Option<usize>) -> Option<BlockId> {
        let segment = self.segments.get(site.segment)?;
        let below = below.and_then(|below| self.live.get(below, &self.arena));
        let below = below.filter(|&id| self.arena[id].segment == site.segment);
        let mut next = Some(below.unwrap_or(segment.first));
        for _ in 0..MOST_LOOKS {
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
    pub(super) fn hand_out_at(
        &mut self,
        id: BlockId,
        addr: usize,
        request: &Request,
        context: &Option<Arc<Context>>,
    ) -> usize {
        debug_assert!(!request.guest || self.fences.is_over_for(request.stream, self.last_use(id)));
        let list = self.arena[id].list;
        self.lists[list].free.remove(&mut self.arena, id);
        let offset = addr - self.arena[id].addr;
        let id = self.leave_front(id, list, offset);
        let id = self.leave_end(id, list, request.size);
        self.ladder.blocks_planned += 1;
        if request.guest {
            self.make_guest(id, request, context)
        } else {
            self.make_live(id, request, context.clone())
        }
    }
}
