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
use super::state::{Request, State};
use crate::block::BlockState;
use crate::ids::BlockId;
use crate::size::{ROUND_LARGE, align_up};

/// Where to map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    /// The block that holds the start: free or unmapped.
    pub first: BlockId,
    /// Where it starts; inside an unmapped block on a page boundary.
    pub start: usize,
    /// Bytes from the start on; more than requested where the start is not aligned as configured.
    pub size: usize,
    /// Pages that must get memory.
    pub pages: usize,
    /// Driver calls that takes; less than one a page where mappings were left behind.
    pub calls: usize,
    /// Unmapped addresses are left on both sides.
    pub apart: bool,
    /// Its pages have another size than such a request's.
    pub other_pages: bool,
}

impl Window {
    /// Windows of less are better. Memory is tight where what can move is scarcer than time.
    fn cost(&self, tight: bool) -> (usize, usize, bool) {
        let worth = if tight { PAGE_WHERE_TIGHT } else { PAGE };
        // Gaps cost pages where windows meet.
        let meets = tight == self.apart;
        (self.pages * worth + self.calls, self.pages, meets)
    }
}

/// What a window is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Any,
    /// Not for memory that is moved, since a window with gaps is there too.
    Dense,
    /// For memory that is moved alone: gaps are left on both sides.
    Apart,
}

/// The best of two kinds.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// Leaves no gaps.
    pub dense: Option<Window>,
    /// For memory that is moved: in unmapped addresses alone it keeps a gap on its left where there is room.
    /// Only looked for while the device is full.
    pub moved: Option<Window>,
}

/// One block of a run.
#[derive(Debug, Clone, Copy)]
struct Part {
    id: BlockId,
    addr: usize,
    end: usize,
    mapped: bool,
}

impl State {
    /// The windows for a request that cost least, in ranges with pages of its size if there are any; the lowest of
    /// equal ones.
    /// Pages where a mapping was left behind can be used if `waits` for their last use are possible.
    pub(super) fn find_windows(
        &self,
        request: &Request,
        reachable: &Reachable,
        waits: bool,
    ) -> Windows {
        let tight = self.is_tight(request);
        let mut windows = Windows::default();
        let mut run = Vec::new();
        for other_pages in [false, true] {
            let mut done = 0;
            for (&addr, &id) in &self.lists[request.list].unmapped {
                let suits = self.pages_of(id).map(|pages| self.suits(pages, request));
                if addr < done || suits == Some(other_pages) {
                    continue;
                }
                self.collect_run(id, &mut run);
                done = run.last().map_or(addr, |part: &Part| part.end);
                let better = |window: &Window, best: Option<Window>| {
                    best.is_none_or(|best| window.cost(tight) < best.cost(tight))
                };
                let offer = &mut |window, purpose| {
                    if purpose != Purpose::Apart && better(&window, windows.dense) {
                        windows.dense = Some(window);
                    }
                    if purpose != Purpose::Dense && better(&window, windows.moved) {
                        windows.moved = Some(window);
                    }
                };
                self.windows_of(&run, request, (reachable, waits), offer);
            }
            // Ranges with other pages do where no addresses are left.
            if windows.dense.is_some() {
                break;
            }
        }
        windows
    }

    /// The free and unmapped neighbours around a block, left to right.
    fn collect_run(&self, id: BlockId, run: &mut Vec<Part>) {
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

    fn windows_of(
        &self,
        run: &[Part],
        request: &Request,
        (reachable, waits): (&Reachable, bool),
        offer: &mut impl FnMut(Window, Purpose),
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
                align_up(start, align) - start + request.size
            } else {
                request.size
            }
        };
        let end = run.last().map_or(0, |part| part.end);
        // No sum below overflows then, whatever was asked for.
        if request.size > end - run[0].addr {
            return;
        }
        let completed = self.fences.completed(self.lists[request.list].stream);
        let calls = |page: usize| match pages.stale(page) {
            None => 1,
            Some(stale) if reachable.has(stale.handle) => 0,
            Some(stale) if stale.tick <= completed => 2,
            Some(_) if waits => WAIT,
            Some(_) => FORBIDDEN,
        };
        // Pages and calls from the run's first page up to each.
        let origin = pages.page_of(run[0].addr);
        let touched = pages.touched();
        let mut sums = vec![(0, 0)];
        for part in run {
            let from = pages.page_of(part.addr.max(pages.addr_of(origin + sums.len() - 1)));
            let to = pages.touching(part.addr, part.end).end.min(touched);
            let (mut missing, mut cost) = sums[sums.len() - 1];
            if part.mapped {
                sums.resize(sums.len() + to.saturating_sub(from), (missing, cost));
                continue;
            }
            sums.extend((from..to).map(|page| {
                if !pages.is_mapped(page) {
                    missing += 1;
                    cost += calls(page);
                }
                (missing, cost)
            }));
        }
        let upto = |page: usize| {
            let known = (page - origin).min(sums.len() - 1);
            let (missing, cost) = sums[known];
            let beyond = page - origin - known;
            (missing + beyond, cost + beyond)
        };
        let mut offer_at = |at: usize, start: usize, purpose: Purpose| {
            let size = aligned(start);
            if start + size > end {
                return;
            }
            let range = pages.touching(start, start + size);
            let (before, after) = (upto(range.start), upto(range.end));
            let (missing, calls) = (after.0 - before.0, after.1 - before.1);
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
            offer(window, purpose);
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
            let spacious = self.device_full && part.end - part.addr >= 2 * gap + request.size;
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

/// What a page counts for, in driver calls: the more of them move, the more lie elsewhere than where they are needed
/// next. Measured at 1.01 to 1.03 times what is live on twelve recorded programs: with windows by calls alone, or by pages
/// alone where memory is tight, sharded ones make up to a half more calls.
const PAGE: usize = 2;
/// The same where memory that can move is scarcer than time.
const PAGE_WHERE_TIGHT: usize = 4;
/// What a wait counts for, in driver calls.
pub(super) const WAIT: usize = 16;
/// More than any window's calls.
const FORBIDDEN: usize = 1 << 40;
/// The least gap left of moved memory, bytes.
const GAP: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Settings;
    use crate::device::DeviceAllocator;
    use crate::driver::fake::FakeDriver;
    use crate::ids::{DeviceId, PoolId, StreamKey};

    const MIB: usize = 1 << 20;
    const S0: StreamKey = StreamKey(0);
    const S1: StreamKey = StreamKey(1);

    #[test]
    fn a_page_counts_as_much_as_two_calls_and_as_four_where_memory_is_tight() {
        let window = |pages, calls| Window {
            first: BlockId::NONE,
            start: 0,
            size: 0,
            pages,
            calls,
            apart: false,
            other_pages: false,
        };
        let is_better = |one: Window, other: Window, tight| one.cost(tight) < other.cost(tight);
        // Mappings left behind at four pages, against three new ones.
        assert!(is_better(window(4, 0), window(3, 3), false));
        assert!(is_better(window(3, 3), window(4, 0), true));
        // Two pages less for five calls more; one for two, and one for five.
        assert!(is_better(window(5, 6), window(3, 11), false));
        assert!(is_better(window(3, 11), window(5, 6), true));
        assert!(is_better(window(4, 5), window(5, 3), false));
        assert!(is_better(window(5, 4), window(4, 9), true));
    }

    #[test]
    fn moved_memory_leaves_gaps_unless_every_page_counts() {
        let driver = Arc::new(FakeDriver::new(512 * MIB));
        let settings = Settings::parse("expandable_segments:True").expect("valid");
        let device = DeviceAllocator::new(DeviceId(0), driver, settings, 32).expect("device");
        let idle = device.allocate(300 * MIB, S0).expect("fits");
        device.allocate(16 * MIB - 4096, S1).expect("fits");
        assert!(device.deallocate(idle));
        let mut state = device.state.lock();
        state.device_full = true;
        let request = state.request(16 * MIB - 4096, 32, S1, PoolId::DEFAULT);
        let moved = |state: &State| {
            let windows = state.find_windows(&request, &Reachable::default(), true);
            windows.moved.expect("addresses are left").apart
        };
        assert!(moved(&state));
        state.most_full = state.reserved();
        assert!(!moved(&state));
    }
}
