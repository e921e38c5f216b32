//! Pages at more than one address, where the driver allows it. A page that moves stays mapped where it was,
//! so it moves at once within a stream (work on it is in order, whatever the address), and moves back
//! without a driver call.
//!
//! ```text
//! page at A: Backed(h) --lend--> Stale(h) --revive--> Backed(h)      (h is nobody's in between, or B's)
//!                                   \--- drop (after the last use at A) ---> Empty
//! ```

use std::collections::{HashMap, HashSet};

use crate::block::BlockState;
use crate::device::DeviceAllocator;
use crate::device::state::{Request, State};
use crate::driver::{DriverResult, PhysicalHandle};
use crate::history::Action;
use crate::ids::{BlockId, SegmentId, StreamKey};
use crate::mix::BuildMix;
use crate::page::{LastUse, NumberSet, Stale};
use crate::sync::MutexGuard;

/// Mappings left behind at the most, for each page held: each takes an entry in the device's page table.
const MAX_STALE: usize = 4;

/// The pages that a request could have without waiting, by their numbers.
pub(in crate::device) type Reachable = NumberSet;

/// Handles that mappings left behind lead to, and the latest use there.
pub(in crate::device) type LeftBehind = HashMap<PhysicalHandle, LastUse, BuildMix>;

impl State {
    /// Whether a page whose last use was this may serve a stream at another address.
    pub(super) fn may_serve(&self, used: LastUse, stream: StreamKey) -> bool {
        self.fences.passed(used) || (self.orders_itself() && used.stream == stream)
    }

    /// Whether a stream's own work orders what it did at one address of a page before what it does at another. A graph
    /// may be replayed on another stream than the one that was captured.
    fn orders_itself(&self) -> bool {
        self.paging.aliasing == Some(true) && self.captures == 0
    }

    /// Takes up to `count` of the idle handles of a size that a stream may have and `choose` agrees to.
    pub(super) fn take_idle(
        &mut self,
        page_size: usize,
        count: usize,
        stream: StreamKey,
        choose: impl Fn(PhysicalHandle) -> bool,
    ) -> Vec<(PhysicalHandle, Option<LastUse>)> {
        let (fences, ordered) = (&self.fences, self.orders_itself());
        self.paging.pages.take(page_size, count, |handle, used| {
            let may = |used| fences.passed(used) || (ordered && used.stream == stream);
            used.is_none_or(may) && choose(handle)
        })
    }

    /// The pages of free blocks and the idle ones that a request could have without waiting, where any
    /// mapping was left behind.
    pub(in crate::device) fn reachable(&self, request: &Request) -> Reachable {
        let mut reachable = Reachable::default();
        if self.paging.stale == 0 {
            return reachable;
        }
        for donor in self.donors() {
            if let Some(pages) = self.pages_of(donor.block)
                && self.may_serve(donor.last_use(), request.stream)
            {
                let numbers = donor.range.filter_map(|page| pages.number(page));
                numbers.for_each(|number| reachable.insert(number));
            }
        }
        for size in self.paging.pages.sizes() {
            for (handle, used) in self.paging.pages.of_size(size) {
                if used.is_none_or(|used| self.may_serve(used, request.stream))
                    && let Some(number) = self.paging.numbers.get(handle)
                {
                    reachable.insert(number);
                }
            }
        }
        reachable
    }

    /// What mappings left behind lead to.
    pub(in crate::device) fn left_behind(&self) -> LeftBehind {
        let mut left = LeftBehind::default();
        for (_, segment) in self.segments.iter() {
            let stream = segment.stream;
            for (_, Stale { handle, tick, .. }) in
                segment.pages.iter().flat_map(|p| p.stale_pages())
            {
                let used = left.entry(handle).or_insert(LastUse { stream, tick });
                if used.tick < tick {
                    *used = LastUse { stream, tick };
                }
            }
        }
        left
    }

    /// Whether pages are left mapped where they were when they move.
    pub(super) fn leaves_mappings(&self, page_size: usize) -> bool {
        let held = self.reserved() / page_size;
        self.paging.aliasing == Some(true) && self.paging.stale < MAX_STALE * held
    }

    /// Takes pages out of a free block, and leaves them mapped there.
    pub(super) fn lend(&mut self, id: BlockId, lent: &[usize]) -> Vec<PhysicalHandle> {
        let freed = self.freed_at(id);
        self.occupy(id);
        let segment = self.arena[id].segment;
        let mut handles = Vec::with_capacity(lent.len());
        if let Some(pages) = self.pages_mut(segment) {
            handles.extend(lent.iter().filter_map(|&page| pages.leave(page, freed)));
        }
        self.paging.stale += handles.len();
        self.ladder.pages_lent += handles.len() as u64;
        let context = self.history.returned(segment);
        self.count_pages(id, lent, Action::SegmentUnmap, context);
        self.settle(id);
        handles
    }

    /// Gives pages of a busy block the memory back that their left mappings lead to, where nobody uses it
    /// now. Takes those pages out of `wanted` (page, address).
    pub(super) fn revive(
        &mut self,
        busy: BlockId,
        request: &Request,
        wanted: &mut Vec<(usize, usize)>,
    ) {
        let segment = self.arena[busy].segment;
        let Some(pages) = self.pages_of(busy).filter(|_| self.paging.stale > 0) else {
            return;
        };
        let page_size = pages.page_size();
        let mut places: HashMap<PhysicalHandle, usize, BuildMix> = wanted
            .iter()
            .filter_map(|&(page, _)| Some((pages.stale(page)?.handle, page)))
            .collect();
        if places.is_empty() {
            return;
        }
        let mut revived = Vec::new();
        let mut latest = None;
        let mut note = |at: u64| latest = Some(latest.map_or(at, |latest: u64| latest.max(at)));
        // From the pool of idle pages.
        let stream = request.stream;
        let idle = self.take_idle(page_size, places.len(), stream, |handle| {
            places.contains_key(&handle)
        });
        for (handle, used) in idle {
            revived.extend(places.remove(&handle));
            used.iter().for_each(|used| note(used.tick));
        }
        // From free blocks.
        for donor in self.donors() {
            if places.is_empty() {
                break;
            }
            if donor.page_size != page_size || !self.may_serve(donor.last_use(), stream) {
                continue;
            }
            let Some(pages) = self.pages_of(donor.block) else {
                continue;
            };
            let mut lent = Vec::new();
            for page in donor.range.clone() {
                if let Some(place) = pages.handle(page).and_then(|h| places.remove(&h)) {
                    lent.push(page);
                    revived.push(place);
                }
            }
            if !lent.is_empty() {
                note(donor.freed);
                self.lend(donor.block, &lent);
            }
        }
        revived.sort_unstable();
        if let Some(pages) = self.pages_mut(segment) {
            for &page in &revived {
                if let Some(stale) = pages.revive(page) {
                    note(stale.tick);
                }
            }
        }
        self.paging.stale -= revived.len();
        self.ladder.pages_revived += revived.len() as u64;
        let context = self.history.returned(segment);
        self.count_pages(busy, &revived, Action::SegmentMap, context);
        if let Some(latest) = latest {
            self.used_until(busy, latest);
        }
        wanted.retain(|(page, _)| revived.binary_search(page).is_err());
    }

    /// Memory of a busy block counts as freed at `tick`, if not later.
    pub(super) fn used_until(&mut self, busy: BlockId, tick: u64) {
        let since = self.arena[busy].free_since;
        self.arena[busy].free_since = self.later(since, tick as u32);
    }

    /// The unmapped block that holds an address.
    fn unmapped_at(&self, segment: SegmentId, addr: usize) -> Option<BlockId> {
        let first = self.segments.get(segment)?.first;
        let list = &self.lists[self.arena[first].list];
        let (_, &id) = list.unmapped.range(..=addr).next_back()?;
        let block = &self.arena[id];
        (block.segment == segment && block.end() > addr && block.state == BlockState::Unmapped)
            .then_some(id)
    }
}

impl DeviceAllocator {
    /// Unmaps mappings left behind whose last use is over: those that lead to the given handles, or all.
    pub(in crate::device) fn drop_stale(
        &self,
        state: &mut MutexGuard<'_, State>,
        of: Option<&HashSet<PhysicalHandle, BuildMix>>,
    ) -> DriverResult<()> {
        let Some(driver) = self
            .driver
            .virtual_memory()
            .filter(|_| state.paging.stale > 0)
        else {
            return Ok(());
        };
        let mut targets = Vec::new();
        for (id, segment) in state.segments.iter() {
            let completed = state.fences.completed(segment.stream);
            for (page, stale) in segment.pages.iter().flat_map(|pages| pages.stale_pages()) {
                if stale.tick <= completed && of.is_none_or(|of| of.contains(&stale.handle)) {
                    targets.push((id, page));
                }
            }
        }
        let mut blocks = Vec::new();
        let mut unmapped = Vec::new();
        for run in targets.chunk_by(|one, next| (one.0, one.1 + 1) == *next) {
            let (segment, first) = run[0];
            let pages = state.segments.get(segment).and_then(|s| s.pages.as_ref());
            let Some(pages) = pages else { continue };
            let part = pages.addr_of(first)..pages.addr_of(first + run.len());
            let addrs = part.clone().step_by(pages.page_size());
            // What another thread is changing stays.
            let unchanged = |id: &BlockId| part.end <= state.arena[*id].end();
            let Some(id) = state.unmapped_at(segment, part.start).filter(unchanged) else {
                continue;
            };
            unmapped.extend(
                run.iter()
                    .zip(addrs)
                    .map(|(&(_, page), addr)| (segment, page, addr)),
            );
            blocks.push(state.occupy_part(id, part));
        }
        let (done, failure) = MutexGuard::unlocked(state, || {
            for (done, (_, _, addr)) in unmapped.iter().enumerate() {
                if let Err(error) = driver.unmap(self.id, *addr) {
                    return (done, Some(error));
                }
            }
            (unmapped.len(), None)
        });
        for (segment, page, _) in &unmapped[..done] {
            if let Some(pages) = state.pages_mut(*segment)
                && pages.forget(*page).is_some()
            {
                state.paging.stale -= 1;
            }
        }
        for id in blocks {
            state.settle(id);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Unmaps what was left behind at pages of a busy block, so that other memory can be mapped there.
    /// Waits for the last use there where it must.
    pub(super) fn clear_stale(
        &self,
        state: &mut MutexGuard<'_, State>,
        busy: BlockId,
        wanted: &[(usize, usize)],
    ) -> DriverResult<()> {
        let segment = state.arena[busy].segment;
        let Some(driver) = self
            .driver
            .virtual_memory()
            .filter(|_| state.paging.stale > 0)
        else {
            return Ok(());
        };
        let Some(pages) = state.pages_of(busy) else {
            return Ok(());
        };
        let stuck: Vec<(usize, usize, u64)> = wanted
            .iter()
            .filter_map(|&(page, addr)| Some((page, addr, pages.stale(page)?.tick)))
            .collect();
        let Some(tick) = stuck.iter().map(|(_, _, tick)| *tick).max() else {
            return Ok(());
        };
        let stream = state.lists[state.arena[busy].list].stream;
        if tick > state.fences.completed(stream) {
            self.poll_fences(state);
        }
        if tick > state.fences.completed(stream) {
            self.wait_for(state, stream, tick)?;
        }
        let (done, failure) = MutexGuard::unlocked(state, || {
            for (done, (_, addr, _)) in stuck.iter().enumerate() {
                if let Err(error) = driver.unmap(self.id, *addr) {
                    return (done, Some(error));
                }
            }
            (stuck.len(), None)
        });
        if let Some(pages) = state.pages_mut(segment) {
            for (page, _, _) in &stuck[..done] {
                pages.forget(*page);
            }
        }
        state.paging.stale -= done;
        failure.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Terms;
    use super::*;
    use crate::config::Settings;
    use crate::driver::fake::FakeDriver;
    use crate::ids::{DeviceId, PoolId};

    const MIB: usize = 1 << 20;

    #[test]
    fn a_place_whose_memory_can_come_back_takes_fewer_calls() {
        let driver = Arc::new(FakeDriver::new(512 * MIB));
        let mut settings = Settings::parse("expandable_segments:True").expect("valid");
        settings.segment_size = 8 * MIB;
        let device = DeviceAllocator::new(DeviceId(0), driver, settings, 32).expect("device");
        let stream = StreamKey(0);
        let allocate = |size: usize| device.allocate(size * MIB - 4096, stream).expect("fits");
        let left = allocate(160);
        allocate(16);
        assert!(device.deallocate(left));
        device.state.lock().budget.device_full = true;
        // Takes its memory from there, and gives half of it back.
        let moved = allocate(168);
        allocate(16);
        assert!(device.deallocate(moved));
        allocate(88);
        let mut state = device.state.lock();
        assert_eq!(state.paging.stale, 20);
        // What leads to memory in use can be unmapped.
        let tick = state.tick;
        state.fences.complete(stream, tick);
        let request = state.request(96 * MIB - 4096, 32, stream, PoolId::DEFAULT);
        let calls = |reachable: &Reachable| {
            let windows = state.find_windows(&request, &Terms::usual(reachable));
            windows.dense.expect("there are addresses").calls
        };
        assert!(calls(&state.reachable(&request)) < calls(&Reachable::default()));
    }
}
