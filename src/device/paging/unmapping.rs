//! Unmapping idle pages of virtual segments, and returning physical memory and addresses to the driver.
//! The block being changed is busy, so the driver is called with the lock released.

use std::ops::Range;

use crate::device::DeviceAllocator;
use crate::device::state::State;
use crate::driver::{DriverError, PhysicalHandle};
use crate::error::Result;
use crate::history::Action;
use crate::ids::{BlockId, MempoolId, PoolId, SegmentId};
use crate::page::LastUse;
use crate::sync::MutexGuard;

impl DeviceAllocator {
    /// Unmaps the whole pages of free blocks, least recently freed first, until `enough` bytes of
    /// physical memory are idle, or all. The device must have been synchronised since `tick`. The
    /// memory stays in the page pool.
    pub(in crate::device) fn unmap_idle(
        &self,
        state: &mut MutexGuard<'_, State>,
        enough: Option<usize>,
        tick: u64,
        releasable: impl Fn(&State, PoolId) -> bool,
    ) -> Result<usize> {
        state.return_guests();
        let mut candidates: Vec<(u64, usize, BlockId)> = Vec::new();
        for (_, list) in state.lists.iter().filter(|(id, _)| id.is_virtual()) {
            if !releasable(state, list.pool) {
                continue;
            }
            for id in list.free.iter(&state.arena) {
                let freed = state.freed_at(id);
                // Freed since the device was synchronised: may still be in use.
                if freed <= tick && state.idle_pages(id).is_some() && state.is_awake(id) {
                    candidates.push((freed, state.arena[id].addr, id));
                }
            }
        }
        candidates.sort_unstable();
        let mut released = 0;
        for (_, addr, id) in candidates {
            let left = enough.map(|enough| enough.saturating_sub(released));
            if left == Some(0) {
                break;
            }
            // Other threads may have taken it meanwhile, or put it to sleep.
            let block = &state.arena[id];
            let fresh = state.freed_at(id) > tick;
            let free = block.state == crate::block::BlockState::Free && block.addr == addr;
            if free && !fresh && state.is_awake(id) {
                released += self.unmap_block(state, id, left)?;
            }
        }
        Ok(released)
    }

    /// Unmaps whole pages of a free block, at most as many as `enough` bytes need: the last ones, or the first
    /// ones where that alone widens a hole.
    pub(super) fn unmap_block(
        &self,
        state: &mut MutexGuard<'_, State>,
        id: BlockId,
        enough: Option<usize>,
    ) -> std::result::Result<usize, DriverError> {
        let Some(driver) = self.driver.virtual_memory() else {
            return Ok(0);
        };
        let Some(mut range) = state.idle_pages(id) else {
            return Ok(0);
        };
        let Some(pages) = state.pages_of(id) else {
            return Ok(0);
        };
        let page_size = pages.page_size();
        if let Some(enough) = enough {
            let count = range.len().min(enough.div_ceil(page_size));
            let block = &state.arena[id];
            let (before, after) = (block.prev, block.next);
            if state.arena.is_unmapped(before) && !state.arena.is_unmapped(after) {
                range.end = range.start + count;
            } else {
                range.start = range.end - count;
            }
        }
        let changed = pages.addr_of(range.start)..pages.addr_of(range.end);
        let targets: Vec<(usize, usize)> = range.map(|page| (page, pages.addr_of(page))).collect();
        let busy = state.occupy_part(id, changed);
        let (count, failure) = MutexGuard::unlocked(state, || {
            for (done, (_, addr)) in targets.iter().enumerate() {
                if let Err(error) = driver.unmap(self.id, *addr) {
                    return (done, Some(error));
                }
            }
            (targets.len(), None)
        });
        let pages: Vec<usize> = targets[..count].iter().map(|(page, _)| *page).collect();
        state.note_unmapped(busy, &pages);
        state.settle(busy);
        failure.map_or(Ok(count * page_size), Err)
    }

    /// Frees idle physical memory, at least `enough` bytes of it, or all.
    pub(in crate::device) fn free_idle_pages(
        &self,
        state: &mut MutexGuard<'_, State>,
        enough: Option<usize>,
    ) -> Result<()> {
        let sizes: Vec<usize> = state.paging.pages.sizes().collect();
        let mut left = enough.unwrap_or(usize::MAX);
        for size in sizes {
            left = left.saturating_sub(self.free_pages(state, size, left)?);
        }
        Ok(())
    }

    /// Frees idle handles of one size, at least `enough` bytes of them, or all there are. Returns the
    /// bytes.
    pub(super) fn free_pages(
        &self,
        state: &mut MutexGuard<'_, State>,
        page_size: usize,
        enough: usize,
    ) -> std::result::Result<usize, DriverError> {
        let Some(driver) = self.driver.virtual_memory() else {
            return Ok(0);
        };
        let count = enough.div_ceil(page_size);
        let guarded = &mut **state;
        let fences = &guarded.fences;
        let mut idle = guarded.paging.pages.take(page_size, count, |_, used| {
            used.is_none_or(|used| fences.passed(used))
        });
        // A handle must be mapped nowhere.
        if state.paging.stale > 0 {
            let handles = idle.iter().map(|(handle, _)| *handle).collect();
            // They are this thread's while the lock is released, and still memory of the process.
            let held = idle.len() * page_size;
            state.budget.growing += held;
            let dropped = self.drop_stale(state, Some(&handles));
            state.budget.growing -= held;
            if let Err(error) = dropped {
                state.keep_idle(page_size, idle);
                return Err(error);
            }
            let left = state.left_behind();
            let (mapped, free) = idle
                .into_iter()
                .partition(|(handle, _)| left.contains_key(handle));
            state.keep_idle(page_size, mapped);
            idle = free;
        }
        for (handle, _) in &idle {
            state.paging.numbers.take_back(*handle);
        }
        let count = idle.len();
        let mut failed = Vec::new();
        let mut failure = None;
        state.budget.leaving += count * page_size;
        MutexGuard::unlocked(state, || {
            for (handle, used) in idle {
                if let Err(error) = driver.free_physical(self.id, handle) {
                    failed.push((handle, used));
                    failure = Some(error);
                }
            }
        });
        state.budget.leaving -= count * page_size;
        let freed = (count - failed.len()) * page_size;
        if freed > 0 {
            state.budget.device_full = false;
        }
        state.keep_idle(page_size, failed);
        failure.map_or(Ok(freed), Err)
    }

    /// Gives back the addresses of virtual segments without memory.
    pub(in crate::device) fn release_empty_ranges(
        &self,
        state: &mut MutexGuard<'_, State>,
        pool: MempoolId,
    ) -> Result<()> {
        let Some(driver) = self.driver.virtual_memory() else {
            return Ok(());
        };
        let empty: Vec<SegmentId> = state
            .segments
            .iter()
            .filter(|(_, segment)| {
                pool == MempoolId::DEFAULT || state.pools.id_of(segment.pool) == pool
            })
            .map(|(id, _)| id)
            .filter(|&id| state.is_empty_range(id))
            .collect();
        for id in empty {
            // Other threads may use a range while the lock is released for the one before it.
            let Some(segment) = state.remove_virtual_segment(id) else {
                continue;
            };
            state.pools.hold(segment.pool);
            let released =
                MutexGuard::unlocked(state, || driver.release_address(self.id, segment.addr));
            state.pools.unhold(segment.pool);
            if let Err(error) = released {
                state.restore_virtual_segment(segment);
                return Err(error.into());
            }
            state.paging.addresses_short = false;
        }
        Ok(())
    }
}

impl State {
    fn keep_idle(&mut self, page_size: usize, handles: Vec<(PhysicalHandle, Option<LastUse>)>) {
        for (handle, used) in handles {
            self.paging.pages.put(page_size, handle, used);
        }
    }

    /// The pages that lie entirely in a block; `None` when there are none.
    pub(in crate::device) fn idle_pages(&self, id: BlockId) -> Option<Range<usize>> {
        let block = &self.arena[id];
        Some(self.pages_of(id)?.within(block.addr, block.end())).filter(|range| !range.is_empty())
    }

    /// Whether a free block's whole pages have memory, and nobody changes that. A pool that woke up in part has such blocks.
    fn is_awake(&self, id: BlockId) -> bool {
        if !self.sleep.has(self.lists[self.arena[id].list].pool) {
            return true;
        }
        let pages = self.pages_of(id).zip(self.idle_pages(id));
        !self.sleep.changing
            && pages.is_some_and(|(pages, mut range)| !range.any(|page| pages.is_asleep(page)))
    }

    fn note_unmapped(&mut self, busy: BlockId, unmapped: &[usize]) {
        if unmapped.is_empty() {
            return;
        }
        let segment = self.arena[busy].segment;
        let Some(pages) = self.pages_mut(segment) else {
            return;
        };
        let handles: Vec<_> = unmapped
            .iter()
            .filter_map(|page| Some((pages.clear(*page)?, None)))
            .collect();
        let page_size = pages.page_size();
        self.keep_idle(page_size, handles);
        self.stats.num_device_free += 1;
        self.ladder.pages_unmapped += unmapped.len() as u64;
        let context = self.history.returned(segment);
        self.count_pages(busy, unmapped, Action::SegmentUnmap, context);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Settings;
    use crate::driver::Driver;
    use crate::driver::fake::FakeDriver;
    use crate::ids::{DeviceId, StreamKey};

    const PAGE: usize = 8 << 20;

    #[test]
    fn idle_memory_is_freed_only_after_its_last_use() {
        let driver = Arc::new(FakeDriver::new(8 * PAGE));
        let device = DeviceAllocator::new(DeviceId(0), driver.clone(), Settings::default(), 32)
            .expect("device");
        let physical = || {
            let memory = driver.virtual_memory().expect("there");
            memory.malloc_physical(DeviceId(0), PAGE, false)
        };
        let (over, running) = (physical().expect("fits"), physical().expect("fits"));
        let mut state = device.state.lock();
        let used = LastUse {
            stream: StreamKey(0),
            tick: state.tick + 1,
        };
        state.paging.pages.put(PAGE, over, None);
        // The latest is taken first, if it may be taken.
        state.paging.pages.put(PAGE, running, Some(used));
        let freed = device.free_pages(&mut state, PAGE, 2 * PAGE);
        assert_eq!(freed, Ok(PAGE));
        let left: Vec<_> = state.paging.pages.of_size(PAGE).collect();
        assert_eq!(left, [(running, Some(used))]);
        state.fences.complete(used.stream, used.tick);
        let freed = device.free_pages(&mut state, PAGE, 2 * PAGE);
        assert_eq!(freed, Ok(PAGE));
        assert_eq!(driver.held_virtual(0).0, 0);
    }

    #[test]
    fn memory_that_was_idle_for_very_long_is_freed() {
        let driver = Arc::new(FakeDriver::new(8 * PAGE));
        let settings = Settings::parse("expandable_segments:True").expect("valid");
        let device =
            DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device");
        let addr = device.allocate(3 * PAGE - 512, StreamKey(0)).expect("fits");
        assert!(device.deallocate(addr));
        // As many frees as a server makes in a day or two.
        device.state.lock().tick += 3 << 30;
        device.empty_cache(MempoolId::DEFAULT).expect("works");
        assert_eq!(driver.held_virtual(0), (0, 0));
        device.check_consistency().expect("consistent");
    }
}
