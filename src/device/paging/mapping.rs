//! Mapping and unmapping pages of virtual segments: the effects over `virtual_blocks`. The block being
//! changed is busy, so the driver is called with the lock released.

use std::sync::Arc;

use super::alias::Reachable;
use super::best_window::{Window, Windows};
use super::gather::Gathered;
use super::window::WAIT;
use crate::device::DeviceAllocator;
use crate::device::ladder::growth::Refusal;
use crate::device::state::{Request, State};
use crate::driver::{DriverError, DriverResult, PhysicalHandle, StreamToken, UNSUPPORTED_CODE};
use crate::error::Result;
use crate::history::{Action, Context};
use crate::ids::{BlockId, MempoolId};
use crate::sync::MutexGuard;

/// The most one reservation may span (a limit of the runtime).
const MAX_RESERVATION: usize = 128 << 30;
/// Ranges that a list may reserve for moved memory; addresses are shared with other users of the device.
const MAX_RANGES: usize = 8;

impl DeviceAllocator {
    /// Serves a request by mapping memory behind or between the blocks of a virtual segment.
    pub(in crate::device) fn grow_virtual(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        context: &Option<Arc<Context>>,
    ) -> Result<std::result::Result<usize, Refusal>> {
        let blind = state.fences.is_blind(request.stream);
        let outcome = self.map_window(state, request, context)?;
        if outcome.is_err() && state.fences.is_blind(request.stream) != blind {
            // There may be a window that needs no wait.
            return self.map_window(state, request, context);
        }
        Ok(outcome)
    }

    /// The block on its way back to a request's list that costs less to wait for than memory from elsewhere costs
    /// to move, and a stream that it waits for.
    pub(in crate::device) fn worth_waiting_for(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
    ) -> Option<(StreamToken, BlockId)> {
        let found = state.coming_back(request, !state.is_full(request))?;
        if !state.moves_memory(request) {
            return None;
        }
        let reachable = state.reachable(request);
        let windows = state.find_windows(request, &reachable, true);
        let calls = windows.dense.map_or(usize::MAX, |window| window.calls);
        (calls > WAIT).then_some(found)
    }

    /// The windows of a request, by what is mapped and over now.
    fn find_windows(&self, state: &mut State, request: &Request) -> Windows {
        let capturing = self.in_capture(state);
        if !capturing && state.paging.stale > 0 {
            self.poll_fences(state);
        }
        // Of two pages that led to the same memory one must be cleared, which can take a wait: while a graph is
        // captured, mappings left behind count as what they cost without being taken back.
        let reachable = if capturing {
            Reachable::default()
        } else {
            state.reachable(request)
        };
        let waits = !capturing && !state.fences.is_blind(request.stream);
        state.note_fullness(request);
        state.find_windows(request, &reachable, waits)
    }

    fn map_window(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        context: &Option<Arc<Context>>,
    ) -> Result<std::result::Result<usize, Refusal>> {
        self.refuse_asleep(state, request.pool)?;
        state.look_at_blocks();
        if state.is_shared(request) {
            if let Some(addr) = self.serve_shared(state, request, context) {
                return Ok(Ok(addr));
            }
        } else if let Some(addr) = self.reuse_guests(state, request, context) {
            return Ok(Ok(addr));
        }
        // Memory is mapped for the list's own stream; a guest waits for that one.
        let (guest, home) = (request, state.at_home(request));
        let request = &home;
        self.refuse_asleep(state, request.pool)?;
        let mut windows = self.find_windows(state, request);
        if windows.dense.is_none_or(|window| window.calls > 0) {
            match self.borrow_block(state, request, context) {
                Ok(Some(addr)) => return Ok(Ok(addr)),
                Ok(None) => (),
                Err(()) => {
                    self.refuse_asleep(state, request.pool)?;
                    windows = self.find_windows(state, request);
                }
            }
        }
        if windows.dense.is_none_or(|window| window.other_pages) {
            // Those with pages of the other size do where there are no more.
            let reserved = match windows.dense {
                Some(_) if state.paging.addresses_short => Ok(false),
                Some(_) => self.reserve(state, request),
                None => self.reserve_surely(state, request),
            };
            self.refuse_asleep(state, request.pool)?;
            windows = self.find_windows(state, request);
            if windows.dense.is_none() && !reserved? {
                return Ok(Err(Refusal::Full));
            }
        }
        let Some(mut window) = windows.dense else {
            return Ok(Err(Refusal::Full));
        };
        // Memory that is to be moved goes where the block can grow later.
        if state.budget.device_full && window.calls > 0 {
            window = windows.moved.unwrap_or(window);
            let whole = window.size / state.page_size(request);
            if !window.apart
                && !state.paging.addresses_short
                && window.pages * 2 > whole
                && state.lists[request.list].ranges < MAX_RANGES
            {
                // What is there does where the driver refuses; but others may have taken it while it was asked.
                let _ = self.reserve(state, request);
                windows = self.find_windows(state, request);
                let Some(found) = windows.moved.or(windows.dense) else {
                    return Ok(Err(Refusal::Full));
                };
                window = found;
            }
        }
        match self.map_into(state, request, &window, context)? {
            Err(refusal) => Ok(Err(refusal)),
            Ok(settled) if guest.guest => {
                let served = self.serve_guest(state, settled, guest, context);
                Ok(served.ok_or(Refusal::Full))
            }
            Ok(settled) => Ok(Ok(state.hand_out(settled, request, context.clone()))),
        }
    }

    /// Gives a window memory, for a request of its list's stream. Returns the free block that holds it then.
    pub(in crate::device) fn map_into(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        window: &Window,
        context: &Option<Arc<Context>>,
    ) -> Result<std::result::Result<BlockId, Refusal>> {
        let busy = state.occupy_window(window);
        let Some(pages) = state.pages_of(busy) else {
            return Ok(Err(Refusal::Full));
        };
        let page_size = pages.page_size();
        let mut wanted: Vec<(usize, usize)> = pages
            .touching(window.start, window.start + window.size)
            .filter(|&page| !pages.is_mapped(page))
            .map(|page| (page, pages.addr_of(page)))
            .collect();
        state.pools.hold(request.pool);
        state.revive(busy, request, &mut wanted);
        let cleared = self.clear_stale(state, busy, &wanted);
        let (mut got, mut failure) = match cleared {
            Ok(()) => self.gather(state, request, page_size, wanted.len()),
            Err(error) => (Gathered::none(page_size), Some(error)),
        };
        let complete = failure.is_none() && got.handles.len() == wanted.len();
        if complete && !wanted.is_empty() {
            if let Some(used) = got.used {
                state.used_until(busy, used.tick);
            }
            let (mapped, failed) = MutexGuard::unlocked(state, || {
                self.map_pages(&wanted, page_size, &mut got.handles)
            });
            state.budget.growing -= mapped.len() * page_size;
            state.note_mapped(busy, &mapped, context.as_ref());
            failure = failed;
        }
        self.put_back(state, got);
        state.pools.unhold(request.pool);
        let settled = state.settle(busy);
        self.refuse_asleep(state, request.pool)?;
        match failure {
            Some(error) if error.is_out_of_memory() => Ok(Err(Refusal::Full)),
            // A wait that only the device's would do.
            Some(error)
                if state.fences.is_blind(request.stream) && error.code == UNSUPPORTED_CODE =>
            {
                Ok(Err(Refusal::Full))
            }
            Some(error) => Err(error.into()),
            None if !complete => Ok(Err(Refusal::Full)),
            None if !state.arena.holds_free(settled, window.start, window.size) => {
                Ok(Err(Refusal::Full))
            }
            None => Ok(Ok(settled)),
        }
    }

    /// Maps each wanted page, taking handles. Returns what was mapped, and the failure that ended it.
    fn map_pages(
        &self,
        wanted: &[(usize, usize)],
        page_size: usize,
        handles: &mut Vec<PhysicalHandle>,
    ) -> (Vec<(usize, PhysicalHandle)>, Option<DriverError>) {
        let mut mapped = Vec::with_capacity(wanted.len());
        let Some(driver) = self.driver.virtual_memory() else {
            return (mapped, None);
        };
        for &(page, addr) in wanted {
            let Some(handle) = handles.pop() else { break };
            if let Err(error) = driver.map(self.id, addr, page_size, handle) {
                handles.push(handle);
                return (mapped, Some(error));
            }
            mapped.push((page, handle));
        }
        (mapped, None)
    }

    /// As [`Self::reserve`]; when the driver has no more addresses, those of ranges in which nothing is used go
    /// back to it first. Only where there is no other way: waits for the device.
    fn reserve_surely(&self, state: &mut MutexGuard<'_, State>, request: &Request) -> Result<bool> {
        let reserved = self.reserve(state, request);
        if matches!(reserved, Ok(true)) || state.segments.iter().all(|(_, s)| s.pages.is_none()) {
            return reserved;
        }
        if self.in_capture(state) {
            self.release_empty_ranges(state, MempoolId::DEFAULT)?;
        } else {
            self.empty(state, MempoolId::DEFAULT, false)?;
        }
        self.reserve(state, request)
    }

    /// Reserves a range for the request's list, or for the one that has its blocks by now. False when there are no addresses.
    fn reserve(&self, state: &mut MutexGuard<'_, State>, request: &Request) -> Result<bool> {
        Ok(self.reserve_block(state, request)?.is_some())
    }

    /// The same. Returns the range as an unmapped block.
    pub(in crate::device) fn reserve_block(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
    ) -> Result<Option<BlockId>> {
        // The size of a page depends on it.
        self.probe_mapping(state);
        state.pools.hold(request.pool);
        let reserved = self.reserve_range(state, request);
        state.pools.unhold(request.pool);
        let Some((addr, size, page_size)) = reserved? else {
            return Ok(None);
        };
        let shared = state
            .shared_since(request)
            .map(|list| state.at_home(&Request { list, ..*request }));
        let request = shared.as_ref().unwrap_or(request);
        Ok(Some(
            state.add_virtual_segment(addr, size, page_size, request),
        ))
    }

    /// Address, size and page size of a range: an eighth more than the device holds, so that pages can move to its end;
    /// less where addresses are short. Nothing when there are none.
    fn reserve_range(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
    ) -> DriverResult<Option<(usize, usize, usize)>> {
        let Some(driver) = self.driver.virtual_memory() else {
            return Ok(None);
        };
        let info = MutexGuard::unlocked(state, || self.driver.memory_info(self.id))?;
        state.budget.total = info.total;
        let page_size = state.page_size(request);
        let least = request.size.next_multiple_of(page_size);
        if least > MAX_RESERVATION {
            return Ok(None);
        }
        let whole_pages = |size: usize| size - size % page_size;
        // The driver has no code for addresses that are used up but that of memory (`halMemAddressReserve`, in svm/v2 and
        // svm/v3). Where fixed segments do without them, it is a failure to map.
        let asked = state.settings.virtual_segments(None).is_some();
        let mut size = whole_pages((info.total + info.total / 8).min(MAX_RESERVATION));
        let reserved = MutexGuard::unlocked(state, || {
            loop {
                match driver.reserve_address(self.id, size.max(least)) {
                    Ok(addr) => return Ok(Some((addr, size.max(least), page_size))),
                    Err(_) if size > least => size = whole_pages(size / 2),
                    Err(error) if error.is_out_of_memory() && asked => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
        });
        state.paging.addresses_short = !matches!(reserved, Ok(Some(_)));
        reserved
    }
}

impl State {
    fn note_mapped(
        &mut self,
        busy: BlockId,
        mapped: &[(usize, PhysicalHandle)],
        context: Option<&Arc<Context>>,
    ) {
        if mapped.is_empty() {
            return;
        }
        let segment = self.arena[busy].segment;
        let numbers: Vec<u32> = mapped
            .iter()
            .map(|(_, handle)| self.paging.numbers.give(*handle))
            .collect();
        let Some(table) = self.pages_mut(segment) else {
            return;
        };
        for ((page, handle), number) in mapped.iter().zip(numbers) {
            table.set(*page, *handle, number);
        }
        let pages: Vec<usize> = mapped.iter().map(|(page, _)| *page).collect();
        self.stats.num_device_alloc += 1;
        self.count_pages(busy, &pages, Action::SegmentMap, context.cloned());
        if let Some(context) = context
            && self.history.active
        {
            let context = context.clone();
            self.history.segments.entry(segment).or_insert(context);
        }
    }
}
