//! Requests of a program that repeats itself, served at the places that a plan has for them.

use std::sync::Arc;

use super::course::Next;
use super::place::Found;
use crate::device::DeviceAllocator;
use crate::device::state::{Request, State};
use crate::error::Result;
use crate::history::{Caller, Context};
use crate::plan::{Period, Place};
use crate::sync::MutexGuard;

/// Steps until a place is free, at the most: waits and memory that is mapped.
const MOST_STEPS: usize = 64;

impl DeviceAllocator {
    /// From now on large requests are noted, and a plan is made for whatever is repeated: for tests.
    #[doc(hidden)]
    pub fn plan_eagerly(&self) {
        self.state.lock().planning.be_eager();
    }

    /// Serves a request where a plan has a place for it that is free, or will be for it. Makes the plan when it is time.
    /// Where it returns nothing, the request is served like any other, as what it has become by then.
    #[cold]
    pub(in crate::device) fn serve_planned(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &mut Request,
        context: &Option<Arc<Context>>,
        caller: &mut Option<Caller>,
    ) -> Result<Option<usize>> {
        let served = match state.next_step(request) {
            Next::Nothing => return Ok(None),
            Next::Plan(period) => {
                self.begin_plan(state, request, &period);
                None
            }
            Next::At(place) => self.serve_at(state, request, place, context, caller),
        };
        if served.is_none() {
            // The lock may have been released.
            state.sleep.refuse(request.pool, self.id)?;
            *request = state.request(request.requested, self.pad, request.stream, request.pool);
        }
        Ok(served)
    }

    fn serve_at(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        place: Place,
        context: &Option<Arc<Context>>,
        caller: &mut Option<Caller>,
    ) -> Option<usize> {
        let mut asked = false;
        for _ in 0..MOST_STEPS {
            let Some(site) = state.site() else {
                state.give_up_plan();
                return None;
            };
            // While the lock was released another thread may have made a plan for another list.
            if !state.is_in_list(site, request.list) {
                return None;
            }
            if state.captures > 0 || state.sleep.has(request.pool) {
                return None;
            }
            let found = state.found_at(site, place, request);
            if let Found::Free(id) = found
                && (!request.guest || state.fences.is_over_for(request.stream, state.last_use(id)))
            {
                let addr = site.addr + place.offset;
                return Some(state.hand_out_at(id, addr, request, context.clone()));
            }
            // The lock is released for what comes now.
            if caller.is_none() {
                *caller = Caller::enter(context.clone());
            }
            let served = match found {
                Found::Taken => false,
                Found::Free(id) => {
                    let used = state.last_use(id);
                    self.order(state, request.stream, used)
                }
                Found::Pending(_) if !asked => {
                    asked = true;
                    self.reap_events(state);
                    true
                }
                Found::Pending(id) => self.order_pending(state, id),
                Found::Returning => self.order_home(state),
                Found::Unmapped(window) => {
                    let home = state.at_home(request);
                    matches!(self.map_into(state, &home, &window, context), Ok(Ok(_)))
                }
            };
            if !served {
                return None;
            }
        }
        None
    }

    /// Makes a plan, if that is worth it and addresses can be had.
    fn begin_plan(&self, state: &mut MutexGuard<'_, State>, request: &Request, period: &Period) {
        let page_size = state.page_size(request);
        let Some(table) = state.plan(period, page_size) else {
            return;
        };
        let range = state.at_home(&Request {
            list: table.list,
            size: table.height,
            requested: table.height,
            ..*request
        });
        let page_size = state.page_size(&range);
        if let Some((site, table)) = state.site_in_use(&table, period, page_size) {
            return state.follow(table, site, period.moved_each());
        }
        let known = state.site_of_a_former_plan(table.list, table.height);
        if known.is_none()
            && state.may_reserve_site()
            && let Ok(Some(block)) = self.reserve_block(state, &range)
        {
            let segment = state.arena[block].segment;
            state.take_range(segment);
        }
        // The lock was released: another thread may have made a plan, and the list may be another stream's.
        if state.planning.is_noting() {
            match state.site_of_a_former_plan(table.list, table.height) {
                Some(site) => state.follow(table, site, period.moved_each()),
                None => state.note_no_range(),
            }
        }
    }
}
