//! Free blocks that serve another stream than their own, once their last use is over, where memory would have to move
//! otherwise: no driver call is needed for that. They return when they were freed and that stream has passed the free;
//! until then only it may have them again ([`guests`](crate::device::blocks::guests)).

use std::sync::Arc;

use crate::config::Rung;
use crate::device::DeviceAllocator;
use crate::device::state::{Request, State};
use crate::history::Context;
use crate::ids::{BlockId, PoolId, StreamKey};
use crate::sync::MutexGuard;

/// Blocks with another stream than their own at the most: they are searched one by one.
const MOST: usize = 1024;
/// Blocks are lent until memory held exceeds what it should be by this part of it: they leave pieces behind that nobody
/// can use. A made-up program of four streams with `expandable_segments:True` held 1.06 times what is live with 100,
/// 1.08 times with 64 or without a bound, in half the driver calls.
const BEYOND: usize = 100;
/// Much is idle when it is this part of what is held. Blocks are lent then on a full device too.
const PLENTY: usize = 4;
/// A block that is lent exceeds the request by this part of it at the most: a guest may stay until memory is short, and
/// what it leaves beside it is missing then. Four made-up programs of four streams with blocks of 16 to 400 MiB need 1.009
/// to 1.039 times what is live without this bound, and 1.006 to 1.018 with it (one address for a page).
const FIT: usize = 4;
/// Requests from this size on (bytes) are worth any block, also of a full device, where a page has one address: moving it
/// takes two calls and a wait. At 1.02 times what is live three of these programs make a third to 44 % fewer calls, the
/// fourth 5 % more.
const WORTH: usize = 64 << 20;
/// Free blocks of a stream that are looked at, the smallest that fit.
const LOOKS: usize = 32;

impl State {
    /// Whether a request is to have a block of another stream rather than memory that moves.
    fn needs_guests(&self, request: &Request) -> bool {
        let guests = self.guests.using.len() + self.guests.returning.len();
        let target = self.target(self.needed_with(request));
        let helps = self.moves_memory(request)
            && (self.has_plenty(request)
                || self.is_worth_lending(request)
                || (!self.is_full(request) && self.reserved() <= target + target / BEYOND));
        self.may_be_guest(request)
            && (helps || self.guests.eager)
            && guests < MOST
            && !self.fences.is_blind(request.stream)
    }

    /// Whether much of the memory held is idle for now.
    fn has_plenty(&self, request: &Request) -> bool {
        let held = self.reserved();
        self.active_with(request) < held - held / PLENTY
    }

    /// Whether moving memory for a request costs more than a guest does.
    fn is_worth_lending(&self, request: &Request) -> bool {
        request.size >= WORTH && self.paging.aliasing == Some(false)
    }

    /// The size of the largest block that a request may have a part of.
    fn largest_to_lend(&self, request: &Request) -> usize {
        if self.is_half_enough(request)
            || self.has_plenty(request)
            || self.is_worth_lending(request)
        {
            usize::MAX
        } else {
            request.size + request.size / FIT
        }
    }

    /// Whether a request may have blocks of other streams.
    pub(super) fn may_be_guest(&self, request: &Request) -> bool {
        request.pool == PoolId::DEFAULT
            && self.settings.max_split_size == usize::MAX
            && !self.settings.skipped_rungs.has(Rung::LentBlocks)
    }

    /// The smallest free block of another stream that is large enough and out of use. Failing that, a stream that has
    /// one, to be asked how far it has come.
    fn block_elsewhere(&self, request: &Request) -> Result<BlockId, Option<StreamKey>> {
        let (mut best, mut unknown) = (None, None);
        let most = self.largest_to_lend(request);
        for (id, list) in self.lists.iter() {
            let alike = id.is_virtual() && id.is_small() == request.small;
            if !alike || list.pool != PoolId::DEFAULT || list.stream == request.stream {
                continue;
            }
            let fits = list.free.iter_from(&self.arena, request.size);
            for id in fits
                .take(LOOKS)
                .take_while(|&id| self.arena[id].size <= most)
            {
                let freed = self.freed_at(id);
                if freed <= self.fences.completed(list.stream) {
                    let size = self.arena[id].size;
                    if best.is_none_or(|(least, _)| size < least) {
                        best = Some((size, id));
                    }
                    break;
                }
                if self.fences.recorded(list.stream) < freed {
                    unknown = Some(list.stream);
                }
            }
        }
        best.map(|(_, id)| id).ok_or(unknown)
    }
}

impl DeviceAllocator {
    /// From now on free blocks serve other streams whenever memory would have to be mapped: for tests.
    #[doc(hidden)]
    pub fn lend_eagerly(&self) {
        self.state.lock().guests.eager = true;
    }

    /// Serves a request from blocks that its stream was the last to use, or that have returned by now.
    pub(in crate::device) fn reuse_guests(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        context: &Option<Arc<Context>>,
    ) -> Option<usize> {
        if !request.virtual_memory || state.guests.returning.is_empty() {
            return None;
        }
        if state.may_be_guest(request)
            && let Some(id) = state.find_returning(request)
        {
            return Some(state.take_returning(id, request, context));
        }
        self.poll_fences(state);
        state.return_guests();
        if let Some(found) = state.find(request) {
            return Some(state.hand_out(found, request, context.clone()));
        }
        // What is left can return once it is known how far these streams have come.
        let unknown = state
            .returning()
            .find(|used| state.fences.recorded(used.stream) < used.tick);
        if let Some(used) = unknown {
            self.ask_stream(state, used.stream, request);
        }
        None
    }

    /// Serves a request from a free block of another stream, where memory would have to move otherwise. A full device
    /// lends where that is worth it: such blocks are in the way of pages that have to move. `Err`: the lock was released.
    pub(in crate::device) fn borrow_block(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        context: &Option<Arc<Context>>,
    ) -> Result<Option<usize>, ()> {
        if state.is_shared(request) || !state.needs_guests(request) || self.in_capture(state) {
            return Ok(None);
        }
        self.poll_fences(state);
        let unknown = match state.block_elsewhere(request) {
            Ok(id) => return Ok(Some(state.lend_block(id, request, context))),
            Err(unknown) => unknown,
        };
        match unknown {
            Some(stream) if self.ask_stream(state, stream, request) => Err(()),
            _ => Ok(None),
        }
    }

    /// Records an event on a stream that will tell how far it has come, unless that could end up in a graph. Whether the
    /// lock was released.
    fn ask_stream(
        &self,
        state: &mut MutexGuard<'_, State>,
        stream: StreamKey,
        request: &Request,
    ) -> bool {
        let may = !self.in_capture(state)
            && state.may_wait_for(stream, request)
            && !state.fences.is_blind(stream)
            && state.fences.has_room(stream);
        if may {
            // A failure does no harm: the next request asks again.
            let _ = self.record_fence(state, stream);
        }
        may
    }
}
