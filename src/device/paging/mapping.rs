//! Mapping and unmapping pages of virtual segments: the effects over `virtual_blocks`. The block being
//! changed is busy, so the driver is called with the lock released.

use std::sync::Arc;

use super::gather::Gathered;
use super::{Refusal, Window};
use crate::device::DeviceAllocator;
use crate::device::state::{Request, State};
use crate::driver::{DriverError, DriverResult, PhysicalHandle, UNSUPPORTED_CODE};
use crate::error::Result;
use crate::history::{Action, Context};
use crate::ids::BlockId;
use crate::sync::MutexGuard;

/// The most one reservation may span (a limit of the runtime).
const MAX_RESERVATION: usize = 128 << 30;

impl DeviceAllocator {
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
        state.sleep.refuse(request.pool, self.id)?;
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

    /// Reserves a range for the request's list, or for the one that has its blocks by now. False when there are no addresses.
    pub(in crate::device) fn reserve(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
    ) -> Result<bool> {
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
