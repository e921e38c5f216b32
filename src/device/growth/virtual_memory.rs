//! New memory for a request in virtual segments: which window of addresses gets it.

use std::sync::Arc;

use crate::device::DeviceAllocator;
use crate::device::paging::alias::Reachable;
use crate::device::paging::{Refusal, Terms, WAIT, Windows};
use crate::device::state::{Request, State};
use crate::driver::StreamToken;
use crate::error::Result;
use crate::history::Context;
use crate::ids::{BlockId, MempoolId};
use crate::sync::MutexGuard;

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
        let waits = |state: &State| {
            (
                state.fences.is_blind(request.stream),
                is_alone(state, request),
            )
        };
        let before = waits(state);
        let outcome = self.map_window(state, request, context)?;
        if outcome.is_err() && waits(state) != before {
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
        let terms = Terms {
            reachable: &reachable,
            waits: true,
            alone: is_alone(state, request),
        };
        let windows = state.find_windows(request, &terms);
        let calls = windows.dense.map_or(usize::MAX, |window| window.calls);
        (calls > WAIT).then_some(found)
    }

    /// The windows of a request in its list's stream's memory, by what is mapped and over now.
    fn find_windows(&self, state: &mut State, guest: &Request) -> Windows {
        let request = &state.at_home(guest);
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
        let terms = Terms {
            reachable: &reachable,
            waits: !capturing && !state.fences.is_blind(request.stream),
            alone: is_alone(state, guest),
        };
        state.note_fullness(request);
        state.find_windows(request, &terms)
    }

    fn map_window(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        context: &Option<Arc<Context>>,
    ) -> Result<std::result::Result<usize, Refusal>> {
        state.sleep.refuse(request.pool, self.id)?;
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
        state.sleep.refuse(request.pool, self.id)?;
        let mut windows = self.find_windows(state, guest);
        if windows.dense.is_none_or(|window| window.calls > 0) {
            match self.borrow_block(state, request, context) {
                Ok(Some(addr)) => return Ok(Ok(addr)),
                Ok(None) => (),
                Err(()) => {
                    state.sleep.refuse(request.pool, self.id)?;
                    windows = self.find_windows(state, guest);
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
            state.sleep.refuse(request.pool, self.id)?;
            windows = self.find_windows(state, guest);
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
                windows = self.find_windows(state, guest);
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
}

/// Whether a request's memory must not be part of another stream's blocks: the last use of those can't be waited for
/// while any stream is captured.
fn is_alone(state: &State, request: &Request) -> bool {
    request.guest && state.captures > 0
}
