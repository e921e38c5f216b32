//! Mapping and unmapping pages of virtual segments: the effects over `virtual_blocks`. The block being
//! changed is busy, so the driver is called with the lock released.

use std::ops::Range;
use std::sync::Arc;

use super::DeviceAllocator;
use super::allocate::Refusal;
use super::state::{Request, State};
use crate::driver::{DriverError, DriverResult, PhysicalHandle};
use crate::error::Result;
use crate::history::{Action, Context};
use crate::ids::{BlockId, MempoolId, PoolId, SegmentId};
use crate::size::SMALL_SEGMENT;
use crate::sync::MutexGuard;

/// The most one reservation may span (a limit of the runtime).
const MAX_RESERVATION: usize = 128 << 30;
/// Size of a page of the 1 GiB page type.
const HUGE_PAGE: usize = 1 << 30;

impl DeviceAllocator {
    /// Serves a request by mapping memory behind or between the blocks of a virtual segment.
    pub(super) fn grow_virtual(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        context: &Option<Arc<Context>>,
    ) -> Result<std::result::Result<usize, Refusal>> {
        let run = match state.find_run(request.list, request.size) {
            Some(run) => run,
            None => match self.reserve(state, request)? {
                Some(run) => run,
                None => return Ok(Err(Refusal::Full)),
            },
        };
        let busy = state.occupy_run(run, request.size);
        let segment = state.arena[busy].segment;
        let (addr, end) = (state.arena[busy].addr, state.arena[busy].end());
        let Some(pages) = state.pages_of(busy) else {
            return Ok(Err(Refusal::Full));
        };
        let page_size = pages.page_size();
        let wanted: Vec<(usize, usize)> = pages
            .touching(addr, end)
            .filter(|&page| !pages.is_mapped(page))
            .map(|page| (page, pages.addr_of(page)))
            .collect();
        let idle = state.pages.take(page_size, wanted.len());
        let bytes = (wanted.len() - idle.len()) * page_size;
        let outcome = if state.limit.is_some_and(|limit| {
            state.reserved() + idle.len() * page_size + state.growing + bytes > limit
        }) {
            state.keep_idle(page_size, idle);
            Err(None)
        } else {
            state.growing += bytes;
            let (mapped, spare, failure) =
                MutexGuard::unlocked(state, || self.map_pages(&wanted, page_size, idle));
            state.growing -= bytes;
            state.keep_idle(page_size, spare);
            state.note_mapped(busy, &mapped, context.as_ref());
            failure.map_or(Ok(()), |error| Err(Some(error)))
        };
        debug_assert_eq!(state.arena[busy].segment, segment);
        state.settle(busy);
        match outcome {
            Ok(()) => {
                let id = state.free_block_at(segment, addr, request.size);
                match id {
                    Some(id) => Ok(Ok(state.hand_out(id, request, context.clone()))),
                    None => Ok(Err(Refusal::Full)),
                }
            }
            Err(None) => Ok(Err(Refusal::Full)),
            Err(Some(error)) if error.is_out_of_memory() => Ok(Err(Refusal::Full)),
            Err(Some(error)) => Err(error.into()),
        }
    }

    /// Maps each wanted page; takes idle handles first. Returns what was mapped, the handles left over,
    /// and the failure that ended it.
    #[allow(clippy::type_complexity)]
    fn map_pages(
        &self,
        wanted: &[(usize, usize)],
        page_size: usize,
        mut handles: Vec<PhysicalHandle>,
    ) -> (
        Vec<(usize, PhysicalHandle)>,
        Vec<PhysicalHandle>,
        Option<DriverError>,
    ) {
        let Some(driver) = self.driver.virtual_memory() else {
            return (Vec::new(), handles, None);
        };
        // All memory first: mapping can only begin when it is sure to be enough.
        while handles.len() < wanted.len() {
            match driver.malloc_physical(self.id, page_size, page_size == HUGE_PAGE) {
                Ok(handle) => handles.push(handle),
                Err(error) => return (Vec::new(), handles, Some(error)),
            }
        }
        let mut mapped = Vec::with_capacity(wanted.len());
        for &(page, addr) in wanted {
            let Some(handle) = handles.pop() else { break };
            if let Err(error) = driver.map(self.id, addr, page_size, handle) {
                handles.push(handle);
                return (mapped, handles, Some(error));
            }
            mapped.push((page, handle));
        }
        (mapped, handles, None)
    }

    /// Reserves a range for the request's list: an eighth more than the device holds, so that pages
    /// can move to its end; less where addresses are short. `None` when there are none.
    fn reserve(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
    ) -> Result<Option<BlockId>> {
        let Some(driver) = self.driver.virtual_memory() else {
            return Ok(None);
        };
        let page_size = state.page_size(request.small);
        let least = request.size.next_multiple_of(page_size);
        state.pools.hold(request.pool);
        let reserved: DriverResult<Option<(usize, usize)>> = MutexGuard::unlocked(state, || {
            let total = self.driver.memory_info(self.id)?.total;
            let mut size = (total + total / 8)
                .min(MAX_RESERVATION)
                .next_multiple_of(page_size);
            loop {
                match driver.reserve_address(self.id, size.max(least)) {
                    Ok(addr) => return Ok(Some((addr, size.max(least)))),
                    Err(error) if size <= least => {
                        return if error.is_out_of_memory() {
                            Ok(None)
                        } else {
                            Err(error)
                        };
                    }
                    Err(_) => size = (size / 2).next_multiple_of(page_size),
                }
            }
        });
        state.pools.unhold(request.pool);
        Ok(reserved?.map(|(addr, size)| state.add_virtual_segment(addr, size, page_size, request)))
    }

    /// Unmaps the whole pages of free blocks, least recently freed first, until `enough` bytes of
    /// physical memory are idle, or all. The device must have been synchronised since `tick`. The
    /// memory stays in the page pool.
    pub(super) fn unmap_idle(
        &self,
        state: &mut MutexGuard<'_, State>,
        enough: Option<usize>,
        tick: u64,
        releasable: impl Fn(&State, PoolId) -> bool,
    ) -> Result<usize> {
        let mut candidates: Vec<(u32, usize, BlockId)> = Vec::new();
        for (_, list) in state.lists.iter().filter(|(_, list)| list.virtual_memory) {
            if !releasable(state, list.pool) {
                continue;
            }
            for id in list.free.iter(&state.arena) {
                let block = &state.arena[id];
                let age = (tick as u32).wrapping_sub(block.free_since);
                // Freed since the device was synchronised: may still be in use.
                if age <= u32::MAX / 2 && state.idle_pages(id).is_some() {
                    candidates.push((u32::MAX - age, block.addr, id));
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
            // Other threads may have taken it meanwhile.
            let block = &state.arena[id];
            let fresh = (tick as u32).wrapping_sub(block.free_since) > u32::MAX / 2;
            if block.state == crate::block::BlockState::Free && block.addr == addr && !fresh {
                released += self.unmap_block(state, id, left)?;
            }
        }
        Ok(released)
    }

    /// Unmaps whole pages of a free block, the last ones first, at most as many as `enough` bytes need.
    fn unmap_block(
        &self,
        state: &mut MutexGuard<'_, State>,
        id: BlockId,
        enough: Option<usize>,
    ) -> Result<usize> {
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
            range.start = range
                .start
                .max(range.end.saturating_sub(enough.div_ceil(page_size)));
        }
        let targets: Vec<(usize, usize)> = range.map(|page| (page, pages.addr_of(page))).collect();
        state.occupy(id);
        let (count, failure) = MutexGuard::unlocked(state, || {
            for (done, (_, addr)) in targets.iter().enumerate() {
                if let Err(error) = driver.unmap(self.id, *addr) {
                    return (done, Some(error));
                }
            }
            (targets.len(), None)
        });
        let pages: Vec<usize> = targets[..count].iter().map(|(page, _)| *page).collect();
        state.note_unmapped(id, &pages);
        state.settle(id);
        failure.map_or(Ok(count * page_size), |error| Err(error.into()))
    }

    /// Frees idle physical memory, at least `enough` bytes of it, or all.
    pub(super) fn free_idle_pages(
        &self,
        state: &mut MutexGuard<'_, State>,
        enough: Option<usize>,
    ) -> Result<()> {
        let Some(driver) = self.driver.virtual_memory() else {
            return Ok(());
        };
        let mut idle = state.pages.drain();
        let mut keep = Vec::new();
        if let Some(enough) = enough {
            let mut bytes = 0;
            let count = idle
                .iter()
                .take_while(|(size, _)| {
                    let more = bytes < enough;
                    bytes += size;
                    more
                })
                .count();
            keep = idle.split_off(count);
        }
        for (size, handle) in keep {
            state.pages.put(size, handle);
        }
        let failed = MutexGuard::unlocked(state, || {
            let mut failed = Vec::new();
            for (size, handle) in idle {
                if let Err(error) = driver.free_physical(self.id, handle) {
                    failed.push((size, handle, error));
                }
            }
            failed
        });
        let mut failure = None;
        for (size, handle, error) in failed {
            state.pages.put(size, handle);
            failure = Some(error);
        }
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Gives back the addresses of virtual segments without memory.
    pub(super) fn release_empty_ranges(
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
            .filter(|(_, segment)| state.is_all_unmapped(segment.first))
            .map(|(id, _)| id)
            .collect();
        for id in empty {
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
        }
        Ok(())
    }
}

impl State {
    /// Size of the pages of a new virtual segment: 2 MiB unless configured.
    fn page_size(&self, small: bool) -> usize {
        let settings = &self.settings;
        if small {
            SMALL_SEGMENT
        } else if settings.page_size_1g {
            HUGE_PAGE
        } else if settings.large_segment_size != crate::size::LARGE_SEGMENT {
            settings.large_segment_size
        } else if settings.segment_size > 0 {
            settings.segment_size
        } else {
            SMALL_SEGMENT
        }
    }

    fn keep_idle(&mut self, page_size: usize, handles: Vec<PhysicalHandle>) {
        for handle in handles {
            self.pages.put(page_size, handle);
        }
    }

    /// The pages that lie entirely in a block; `None` when there are none.
    fn idle_pages(&self, id: BlockId) -> Option<Range<usize>> {
        let block = &self.arena[id];
        Some(self.pages_of(id)?.within(block.addr, block.end())).filter(|range| !range.is_empty())
    }

    fn is_all_unmapped(&self, id: BlockId) -> bool {
        let block = &self.arena[id];
        block.state == crate::block::BlockState::Unmapped && !block.is_split()
    }

    fn note_mapped(
        &mut self,
        busy: BlockId,
        mapped: &[(usize, PhysicalHandle)],
        context: Option<&Arc<Context>>,
    ) {
        if mapped.is_empty() {
            return;
        }
        let (segment, list) = (self.arena[busy].segment, self.arena[busy].list);
        let small = self.lists[list].small;
        let Some(pages) = self.pages_mut(segment) else {
            return;
        };
        for (page, handle) in mapped {
            pages.set(*page, *handle);
        }
        let (addr, page_size) = (pages.addr_of(mapped[0].0), pages.page_size());
        let bytes = mapped.len() * page_size;
        self.stats.reserved_bytes.increase(small, bytes as i64);
        self.stats.num_device_alloc += 1;
        let pool = self.lists[list].pool;
        self.pools.count_mapped(pool, small, bytes as i64);
        self.trace_range(Action::SegmentMap, list, addr, bytes, context.cloned());
        if let Some(context) = context
            && self.history.active
        {
            let context = context.clone();
            self.history.segments.entry(segment).or_insert(context);
        }
    }

    fn note_unmapped(&mut self, busy: BlockId, unmapped: &[usize]) {
        if unmapped.is_empty() {
            return;
        }
        let (segment, list) = (self.arena[busy].segment, self.arena[busy].list);
        let small = self.lists[list].small;
        let Some(pages) = self.pages_mut(segment) else {
            return;
        };
        let handles: Vec<_> = unmapped
            .iter()
            .filter_map(|page| pages.clear(*page))
            .collect();
        let (addr, page_size) = (pages.addr_of(unmapped[0]), pages.page_size());
        let bytes = handles.len() * page_size;
        self.keep_idle(page_size, handles);
        self.stats.reserved_bytes.decrease(small, bytes as i64);
        self.stats.num_device_free += 1;
        let pool = self.lists[list].pool;
        self.pools.count_mapped(pool, small, -(bytes as i64));
        let context = self.history.segments.get(&segment).cloned();
        self.trace_range(Action::SegmentUnmap, list, addr, bytes, context);
    }
}
