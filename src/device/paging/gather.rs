//! Physical memory for a window: idle handles, new ones, and whole idle pages of free blocks, which are
//! unmapped once the work that used them is known to be over. Never synchronises the device.

use crate::config::Rung;
use crate::device::DeviceAllocator;
use crate::device::state::{Request, State};
use crate::driver::{DriverError, DriverResult, PhysicalHandle, UNSUPPORTED_CODE};
use crate::page::LastUse;
use crate::sync::MutexGuard;

/// Handles that a thread holds for its window. They count as growing until they are mapped or put back.
pub(super) struct Gathered {
    pub handles: Vec<PhysicalHandle>,
    page_size: usize,
    wanted: usize,
    /// How many the driver was asked for.
    fresh: usize,
    /// Their latest use, by the stream they are for, where it may not be over.
    pub used: Option<LastUse>,
}

impl Gathered {
    pub fn none(page_size: usize) -> Self {
        Self {
            handles: Vec::new(),
            page_size,
            wanted: 0,
            fresh: 0,
            used: None,
        }
    }

    fn missing(&self) -> usize {
        self.wanted - self.handles.len()
    }

    fn add(&mut self, handle: PhysicalHandle, used: Option<LastUse>) {
        self.handles.push(handle);
        if let Some(used) = used
            && self.used.is_none_or(|latest| latest.tick < used.tick)
        {
            self.used = Some(used);
        }
    }
}

impl DeviceAllocator {
    /// Collects `wanted` handles for pages of `page_size` bytes. Returns what it has when there is no
    /// more, and the failure, if one ended it.
    pub(super) fn gather(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        page_size: usize,
        wanted: usize,
    ) -> (Gathered, Option<DriverError>) {
        let mut got = Gathered {
            handles: Vec::with_capacity(wanted),
            page_size,
            wanted,
            fresh: 0,
            used: None,
        };
        let outcome = self.gather_into(state, request, &mut got);
        (got, outcome.err())
    }

    fn gather_into(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        got: &mut Gathered,
    ) -> DriverResult<()> {
        state.note_needed(request);
        let capturing = self.in_capture(state);
        self.take_prefetched(state);
        self.take_idle(state, request, got);
        if got.missing() > 0 && state.budget.ahead > 0 {
            self.settle_prefetched(state);
            self.take_idle(state, request, got);
        }
        state.ladder.pages_idle += got.handles.len() as u64;
        // New memory, as long as little is idle.
        if !state.budget.device_full {
            let room = state.room_to_grow(request) / got.page_size;
            self.obtain(state, got, room)?;
        }
        if got.missing() == 0 {
            self.prefetch(state, request, got.page_size, got.wanted);
            return Ok(());
        }
        if state.settings.skipped_rungs.has(Rung::MovedPages) {
            return self.obtain(state, got, usize::MAX);
        }
        // Idle pages whose last use is over.
        if !capturing {
            self.poll_fences(state);
        }
        state.return_guests();
        let missing = got.missing();
        self.unmap_donors(state, request, got)?;
        // Idle pages of blocks that other streams have freed, which this list's waits for.
        let stays = state.leaves_mappings(got.page_size);
        if got.missing() > 0 && stays && state.is_shared(request) && self.order_home(state) {
            self.unmap_donors(state, request, got)?;
        }
        // Idle pages after a wait for the stream that used them.
        while got.missing() > 0 && !capturing && self.await_fence(state, got, request)? {
            state.return_guests();
            self.unmap_donors(state, request, got)?;
        }
        if !state.budget.device_full {
            state.budget.moved += (missing - got.missing()) * got.page_size;
        }
        state.note_move(got.page_size);
        // The device may have room again.
        if got.missing() > 0 {
            self.free_other_sizes(state, request, got.page_size, got.missing() * got.page_size)?;
            self.obtain(state, got, usize::MAX)?;
        }
        if !capturing {
            self.record_fences(state, request);
        }
        Ok(())
    }

    /// Handles given up: those that were idle before are again, new ones go back to the driver.
    pub(super) fn put_back(&self, state: &mut MutexGuard<'_, State>, got: Gathered) {
        let page_size = got.page_size;
        let fresh = got.fresh.min(got.handles.len());
        state.budget.growing -= got.handles.len() * page_size;
        for handle in got.handles {
            state.paging.pages.put(page_size, handle, got.used);
        }
        if fresh > 0 {
            // A handle that can't be freed stays idle.
            let _ = self.free_pages(state, page_size, fresh * page_size);
        }
    }

    fn take_idle(&self, state: &mut State, request: &Request, got: &mut Gathered) {
        let (page_size, missing) = (got.page_size, got.missing());
        let idle = state.take_idle(page_size, missing, request.stream, |_| true);
        state.budget.growing += idle.len() * got.page_size;
        for (handle, used) in idle {
            got.add(handle, used.filter(|used| !state.fences.passed(*used)));
        }
    }

    /// Asks the driver for handles, at most `room` of them.
    fn obtain(
        &self,
        state: &mut MutexGuard<'_, State>,
        got: &mut Gathered,
        room: usize,
    ) -> DriverResult<()> {
        let limit = state.room_under_limit() / got.page_size;
        let count = got.missing().min(room).min(limit);
        let Some(driver) = self.driver.virtual_memory() else {
            return Ok(());
        };
        if count == 0 {
            return Ok(());
        }
        let page_size = got.page_size;
        let huge = state.settings.is_huge_page(page_size);
        state.budget.growing += count * page_size;
        let (handles, failure) = MutexGuard::unlocked(state, || {
            let mut handles = Vec::with_capacity(count);
            for _ in 0..count {
                match driver.malloc_physical(self.id, page_size, huge) {
                    Ok(handle) => handles.push(handle),
                    Err(error) => return (handles, Some(error)),
                }
            }
            (handles, None)
        });
        state.budget.growing -= (count - handles.len()) * page_size;
        got.fresh += handles.len();
        state.ladder.pages_new += handles.len() as u64;
        got.handles.extend(handles);
        match failure {
            None => {
                state.budget.device_full = false;
                Ok(())
            }
            Some(error) if error.is_out_of_memory() => {
                state.budget.device_full = true;
                Ok(())
            }
            Some(error) => Err(error),
        }
    }

    /// Takes pages of donors whose last use is over, or was by the request's stream where they can stay
    /// mapped.
    fn unmap_donors(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        got: &mut Gathered,
    ) -> DriverResult<()> {
        for donor in state.donors_for(got.page_size, request.stream) {
            if got.missing() == 0 {
                break;
            }
            if !state.is_unchanged(&donor) {
                continue;
            }
            if state.leaves_mappings(got.page_size) {
                // It may have become smaller since.
                let Some(range) = state.idle_pages(donor.block) else {
                    continue;
                };
                let start = range.end - got.missing().min(range.len());
                let lent: Vec<usize> = (start..range.end).collect();
                let over = state.fences.passed(donor.last_use());
                for handle in state.lend(donor.block, &lent) {
                    got.add(handle, (!over).then(|| donor.last_use()));
                    state.budget.growing += got.page_size;
                }
            } else if donor.freed <= state.fences.completed(donor.stream) {
                self.unmap_block(state, donor.block, Some(got.missing() * got.page_size))?;
                self.take_idle(state, request, got);
            }
        }
        Ok(())
    }

    /// Waits until more donors' last use is over: those of the request's stream first. False when no
    /// stream has any.
    fn await_fence(
        &self,
        state: &mut MutexGuard<'_, State>,
        got: &Gathered,
        request: &Request,
    ) -> DriverResult<bool> {
        let mut donors = state.donors();
        donors.retain(|donor| {
            donor.page_size == got.page_size
                && state.may_wait_for(donor.stream, request)
                && donor.freed > state.fences.completed(donor.stream)
                && !state.fences.is_blind(donor.stream)
        });
        // The oldest that add up, of one stream.
        donors.sort_unstable_by_key(|d| (d.stream != request.stream, d.stream, d.freed));
        let Some(first) = donors.first().cloned() else {
            return self.await_guest(state, request);
        };
        let mut pages = 0;
        let mut tick = first.freed;
        for donor in donors
            .iter()
            .take_while(|donor| donor.stream == first.stream)
        {
            if pages >= got.missing() {
                break;
            }
            pages += donor.pages();
            tick = donor.freed;
        }
        match self.wait_for(state, first.stream, tick) {
            // Other streams may tell; for this one the last resort will wait for the device.
            Err(error) if error.code == UNSUPPORTED_CODE => Ok(state.fences.is_blind(first.stream)),
            waited => waited.map(|()| true),
        }
    }

    /// Waits for the last use of the block that is to return and was freed first. False when there is none.
    fn await_guest(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
    ) -> DriverResult<bool> {
        let first = state
            .returning()
            .filter(|used| state.may_wait_for(used.stream, request))
            .filter(|used| !state.fences.is_blind(used.stream))
            .min_by_key(|used| used.tick);
        let Some(used) = first else {
            return Ok(false);
        };
        match self.wait_for(state, used.stream, used.tick) {
            Err(error) if error.code == UNSUPPORTED_CODE => Ok(state.fences.is_blind(used.stream)),
            waited => waited.map(|()| true),
        }
    }

    /// Returns idle memory in pages of other sizes to the driver, so that it can be had in this one.
    fn free_other_sizes(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        page_size: usize,
        bytes: usize,
    ) -> DriverResult<()> {
        let mut donors = state.donors();
        donors.retain(|donor| donor.page_size != page_size);
        let mut freed = 0;
        for donor in donors {
            if freed >= bytes {
                break;
            }
            if donor.freed > state.fences.completed(donor.stream) {
                if self.in_capture(state) || !state.may_wait_for(donor.stream, request) {
                    continue;
                }
                match self.wait_for(state, donor.stream, donor.freed) {
                    Err(error) if error.code == UNSUPPORTED_CODE => continue,
                    waited => waited?,
                }
            }
            if state.is_unchanged(&donor) {
                freed += self.unmap_block(state, donor.block, Some(bytes - freed))?;
            }
        }
        let idle: Vec<usize> = state
            .paging
            .pages
            .sizes()
            .filter(|size| *size != page_size)
            .collect();
        for size in idle {
            self.free_pages(state, size, bytes)?;
        }
        Ok(())
    }
}
