//! The runs of addresses in which a window can lie: free and unmapped blocks beside each other. Pure.

use super::best_window::Run;
use crate::block::BlockState;
use crate::device::state::{Request, State};
use crate::ids::BlockId;

/// One block of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub id: BlockId,
    pub addr: usize,
    pub end: usize,
    /// Free; otherwise unmapped.
    pub mapped: bool,
}

impl State {
    /// The runs of free and unmapped addresses that are large enough for a request, by address.
    pub(super) fn runs(
        &self,
        request: &Request,
        (other_pages, alone): (bool, bool),
        worth: usize,
        parts: &mut Vec<Part>,
    ) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut done = 0;
        for (&addr, &id) in &self.lists[request.list].unmapped {
            if addr < done {
                continue;
            }
            let Some(pages) = self.pages_of(id) else {
                continue;
            };
            if self.suits(pages, request) == other_pages {
                continue;
            }
            self.collect_run(id, alone, parts);
            let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
                continue;
            };
            done = last.end;
            // No sum of addresses overflows then, whatever was asked for.
            if request.size > last.end - first.addr {
                continue;
            }
            let mapped = parts.iter().filter(|part| part.mapped);
            let mapped: usize = mapped
                .map(|part| pages.touching(part.addr, part.end).len())
                .sum();
            let wanted = request.size.div_ceil(pages.page_size());
            runs.push(Run {
                first: first.id,
                addr: first.addr,
                least_cost: wanted.saturating_sub(mapped) * worth,
            });
        }
        runs
    }

    /// The free and unmapped neighbours around a block, left to right; or of an unmapped one `alone` what is not beside
    /// mapped memory.
    pub(super) fn collect_run(&self, id: BlockId, alone: bool, run: &mut Vec<Part>) {
        if alone {
            run.clear();
            run.extend(self.inner_pages(id));
            return;
        }
        let usable = |id: BlockId| {
            let state = self.arena[id].state;
            matches!(state, BlockState::Free | BlockState::Unmapped)
        };
        let mut first = id;
        while let Some(prev) = self.arena[first].prev.some().filter(|&prev| usable(prev)) {
            first = prev;
        }
        run.clear();
        let mut next = Some(first);
        while let Some(id) = next.filter(|&id| usable(id)) {
            let block = &self.arena[id];
            run.push(Part {
                id,
                addr: block.addr,
                end: block.end(),
                mapped: block.state == BlockState::Free,
            });
            next = block.next.some();
        }
    }

    /// The addresses of an unmapped block without the page beside each neighbour, which is mapped, or may be soon.
    fn inner_pages(&self, id: BlockId) -> Option<Part> {
        let page_size = self.pages_of(id)?.page_size();
        let block = &self.arena[id];
        let beside = |other: BlockId| if other.is_some() { page_size } else { 0 };
        let addr = block.addr + beside(block.prev);
        let end = block.end() - beside(block.next);
        (addr < end).then_some(Part {
            id,
            addr,
            end,
            mapped: false,
        })
    }
}
