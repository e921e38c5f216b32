//! Where in its list's address ranges a request is served by mapping memory: the window that takes the
//! fewest pages and driver calls. Pure.
//!
//! ```text
//! run      | free A     | unmapped       | free B |   (between blocks that are in use)
//! windows  |=========>  .                .        |   from A to the right
//!          |            .         <===============|   from the end of B to the left
//!          |            |=========>      .        |   in unmapped addresses alone
//!          |            .     |=========>.        |   the same, with a gap on its left
//! ```
//!
//! Memory moved from elsewhere goes where it leaves unmapped addresses beside it: a block that is freed
//! there can later grow by the pages that a larger request lacks, instead of being gathered anew.

use super::alias::Reachable;
use super::best_window::{Best, Purpose, Run, Window, Windows};
use super::missing::Missing;
use super::runs::Part;
use crate::block::BlockState;
use crate::device::state::{Request, State};
use crate::ids::BlockId;
use crate::size::ROUND_LARGE;

/// What a window may be made of.
#[derive(Debug, Clone, Copy)]
pub(in crate::device) struct Terms<'a> {
    /// Pages that can serve again where their mapping was left behind.
    pub reachable: &'a Reachable,
    /// Waits for the last use of other such pages are possible.
    pub waits: bool,
    /// Only of unmapped addresses, with one between it and all else: what it holds then is for a stream that can't wait
    /// for the last use of a block that it is part of, or merges with.
    pub alone: bool,
}

#[cfg(test)]
impl<'a> Terms<'a> {
    /// What is reachable, waits, and memory beside other blocks.
    pub fn usual(reachable: &'a Reachable) -> Self {
        Self {
            reachable,
            waits: true,
            alone: false,
        }
    }
}

impl State {
    /// The windows for a request that cost least, in ranges with pages of its size if there are any; the lowest of
    /// equal ones.
    pub(in crate::device) fn find_windows(&self, request: &Request, terms: &Terms) -> Windows {
        let mut best = Best::new(self.is_tight());
        let (mut parts, mut missing) = (Vec::new(), Missing::default());
        for other_pages in [false, true] {
            let runs = self.runs(
                request,
                (other_pages, terms.alone),
                best.worth(),
                &mut parts,
            );
            let mut look = |run: &Run, best: &mut Best| {
                best.run = run.addr;
                self.collect_run(run.first, terms.alone, &mut parts);
                self.windows_of(&parts, request, terms, &mut missing, best);
            };
            // What has the most memory first: hardly any other is worth a look then.
            let first = runs.iter().min_by_key(|run| (run.least_cost, run.addr));
            if let Some(first) = first {
                look(first, &mut best);
            }
            for run in &runs {
                if Some(run.addr) != first.map(|first| first.addr) && best.may_beat(run) {
                    look(run, &mut best);
                }
            }
            // Ranges with other pages do where no addresses are left.
            if best.dense.is_some() {
                break;
            }
        }
        best.windows()
    }

    /// Offers the windows of one run.
    fn windows_of(
        &self,
        run: &[Part],
        request: &Request,
        terms: &Terms,
        missing: &mut Missing,
        best: &mut Best,
    ) {
        let Some(pages) = run.first().and_then(|part| self.pages_of(part.id)) else {
            return;
        };
        let other_pages = !self.suits(pages, request);
        let page = pages.page_size();
        let base = pages.addr_of(0);
        let page_start = |addr: usize| base + (addr - base) / page * page;
        let align = self.settings.base_addr_aligned_size;
        let aligned = |start: usize| {
            if request.size >= ROUND_LARGE && align != 0 {
                start.next_multiple_of(align) - start + request.size
            } else {
                request.size
            }
        };
        let end = run.last().map_or(0, |part| part.end);
        let completed = self.fences.completed(self.lists[request.list].stream);
        let calls = |page: usize| match pages.stale(page) {
            None => 1,
            Some(stale) if terms.reachable.contains(stale.number) => 0,
            Some(stale) if stale.tick <= completed => 2,
            Some(_) if terms.waits => WAIT,
            Some(_) => FORBIDDEN,
        };
        missing.count(run, pages, calls);
        let touched = pages.touched();
        let mut offer_at = |at: usize, start: usize, purpose: Purpose| {
            let size = aligned(start);
            if start + size > end {
                return;
            }
            let range = pages.touching(start, start + size);
            let (missing, calls) = missing.within(&range);
            if calls >= FORBIDDEN {
                return;
            }
            let window = Window {
                first: run[at].id,
                start,
                size,
                pages: missing,
                calls,
                apart: purpose == Purpose::Apart,
                other_pages,
            };
            best.offer(window, purpose);
        };
        for (at, part) in run.iter().enumerate() {
            if part.mapped {
                offer_at(at, part.addr, Purpose::Any);
                // To the left from its end, into unmapped addresses.
                if at > 0 && part.end - run[0].addr > request.size {
                    let start = page_start(part.end - request.size);
                    let left = run[..at]
                        .iter()
                        .rposition(|it| !it.mapped && it.addr <= start && start < it.end);
                    if let Some(left) = left {
                        offer_at(left, start, Purpose::Any);
                    }
                }
                continue;
            }
            // Where mappings were left behind.
            let own = pages.touching(part.addr, part.end);
            for page in own.start..own.end.min(touched) {
                let begins = page == own.start || pages.stale(page - 1).is_none();
                if begins && pages.stale(page).is_some() {
                    offer_at(at, pages.addr_of(page), Purpose::Any);
                }
            }
            let gap = (request.size * 2).max(GAP).next_multiple_of(page);
            // Memory is moved when the device is full.
            let spacious =
                self.budget.device_full && part.end - part.addr >= 2 * gap + request.size;
            if spacious {
                offer_at(at, part.addr + gap, Purpose::Apart);
            }
            // From a mapped left neighbour on is never worse.
            if at == 0 || !run[at - 1].mapped {
                let purpose = if spacious {
                    Purpose::Dense
                } else {
                    Purpose::Any
                };
                offer_at(at, part.addr, purpose);
            }
        }
    }

    /// Takes a window out of circulation as one busy block. Its pages can then be changed with the lock
    /// released. Ends with [`Self::settle`].
    pub(super) fn occupy_window(&mut self, window: &Window) -> BlockId {
        let mut first = window.first;
        let offset = window.start - self.arena[first].addr;
        let unmapped = self.arena[first].state == BlockState::Unmapped;
        self.occupy(first);
        if offset > 0 && unmapped {
            // What is left of the window stays unmapped.
            let left = self.split_front(first, offset);
            self.arena[left].state = BlockState::Busy;
            self.busy += 1;
            self.settle(left);
        }
        // Memory that is mapped now counts as freed when the youngest part was.
        let mut latest = (!unmapped).then_some(self.arena[first].free_since);
        while self.arena[first].size < window.size {
            let next = self.arena[first].next;
            if self.arena[next].state == BlockState::Free {
                let since = self.arena[next].free_since;
                latest = Some(latest.map_or(since, |latest| self.later(latest, since)));
            }
            self.occupy(next);
            self.arena.merge_right(first, next);
            self.busy -= 1;
        }
        self.arena[first].free_since = latest.unwrap_or(0);
        // Cut an unmapped end back to the pages needed.
        let (addr, whole) = (self.arena[first].addr, self.arena[first].size);
        let (end, tail_unmapped) = self.pages_of(first).map_or((addr + whole, false), |pages| {
            let end = pages.addr_of(pages.touching(addr, addr + window.size).end);
            let last = pages.page_of(addr + whole - 1);
            (end, end < addr + whole && !pages.is_mapped(last))
        });
        if tail_unmapped {
            let busy = self.split_front(first, end - addr);
            self.arena[busy].state = BlockState::Busy;
            self.arena[busy].free_since = self.arena[first].free_since;
            self.busy += 1;
            self.settle(first);
            first = busy;
        }
        first
    }
}

/// What a wait counts for, in driver calls.
pub(in crate::device) const WAIT: usize = 16;
/// More than any window's calls.
const FORBIDDEN: usize = 1 << 40;
/// The least gap left of moved memory, bytes.
const GAP: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::config::Settings;
    use crate::device::DeviceAllocator;
    use crate::driver::fake::FakeDriver;
    use crate::ids::{DeviceId, PoolId, StreamKey};

    const MIB: usize = 1 << 20;
    const S0: StreamKey = StreamKey(0);
    const S1: StreamKey = StreamKey(1);

    #[test]
    fn moved_memory_leaves_gaps_unless_every_page_counts() {
        let driver = Arc::new(FakeDriver::new(512 * MIB));
        let settings = Settings::parse("expandable_segments:True").expect("valid");
        let device = DeviceAllocator::new(DeviceId(0), driver, settings, 32).expect("device");
        let idle = device.allocate(300 * MIB, S0).expect("fits");
        device.allocate(16 * MIB - 4096, S1).expect("fits");
        assert!(device.deallocate(idle));
        let mut state = device.state.lock();
        state.budget.device_full = true;
        let request = state.request(16 * MIB - 4096, 32, S1, PoolId::DEFAULT);
        let moved = |state: &State| {
            let windows = state.find_windows(&request, &Terms::usual(&Reachable::default()));
            windows.moved.expect("addresses are left").apart
        };
        assert!(moved(&state));
        state.budget.most_full = state.reserved();
        assert!(!moved(&state));
    }

    /// The best windows of all runs, each of them looked at.
    fn best_of_all(state: &State, request: &Request, terms: &Terms) -> Windows {
        let mut best = Best::new(state.is_tight());
        let (mut parts, mut missing) = (Vec::new(), Missing::default());
        for other_pages in (0..2).map(|turn| turn == 1) {
            for run in state.runs(
                request,
                (other_pages, terms.alone),
                best.worth(),
                &mut parts,
            ) {
                best.run = run.addr;
                state.collect_run(run.first, terms.alone, &mut parts);
                state.windows_of(&parts, request, terms, &mut missing, &mut best);
            }
            if best.dense.is_some() {
                break;
            }
        }
        best.windows()
    }

    proptest! {
        #[test]
        fn runs_that_are_not_looked_at_have_no_better_window(
            ops in prop::collection::vec((any::<bool>(), 1usize..60, 0usize..2, any::<usize>()), 20..120),
            sizes in prop::collection::vec(1usize..200, 1..8), full in any::<bool>(), tight in any::<bool>()
        ) {
            let driver = Arc::new(FakeDriver::new(512 * MIB));
            let mut settings = Settings::parse("expandable_segments:True").expect("valid");
            settings.segment_size = 2 * MIB;
            let device = DeviceAllocator::new(DeviceId(0), driver, settings, 32).expect("device");
            let mut live = Vec::new();
            for (frees, size, stream, at) in ops {
                if frees && !live.is_empty() {
                    let addr = live.swap_remove(at % live.len());
                    prop_assert!(device.deallocate(addr));
                } else if let Ok(addr) = device.allocate(size * MIB - 4096, StreamKey(stream)) {
                    live.push(addr);
                }
            }
            let mut state = device.state.lock();
            state.budget.device_full = full;
            if tight {
                state.budget.most_full = state.reserved();
            }
            // Also what would fill holes to their end.
            let unmapped = state.arena.iter().filter(|(_, block)| block.state == BlockState::Unmapped);
            let holes: Vec<usize> = unmapped.map(|(_, block)| block.size / MIB).filter(|&size| size < 200).collect();
            for size in sizes.into_iter().chain(holes.iter().map(|size| size - 2)) {
                let request = state.request(size * MIB, 32, StreamKey(size % 2), PoolId::DEFAULT);
                let reachable = state.reachable(&request);
                for alone in (0..2).map(|turn| turn == 1) {
                    let terms = Terms { alone, ..Terms::usual(&reachable) };
                    let found = state.find_windows(&request, &terms);
                    let expected = best_of_all(&state, &request, &terms);
                    prop_assert_eq!(found.dense, expected.dense);
                    prop_assert_eq!(found.moved, expected.moved);
                    let windows = [found.dense, found.moved].into_iter().flatten();
                    for window in windows.filter(|_| alone) {
                        let pages = state.pages_of(window.first).expect("virtual");
                        let used = pages.touching(window.start, window.start + window.size);
                        let mut around = used.start.saturating_sub(1)..used.end + 1;
                        prop_assert!(around.all(|page| !pages.is_mapped(page)));
                    }
                }
            }
        }
    }
}
