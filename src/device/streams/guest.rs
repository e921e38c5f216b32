//! Free blocks that serve another stream than their own, once their last use is over, where memory would have to move
//! otherwise: no driver call is needed for that. They return when they were freed and that stream has passed the free;
//! until then only it may have them again.
//!
//! ```text
//! Free --handed out to stream B--> Live (guest) --freed--> Returning --B has passed it--> Free
//!                                       ^--------- request of B -----/
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use super::returning::Returning;
use crate::block::{BlockState, GUEST};
use crate::config::Rung;
use crate::device::DeviceAllocator;
use crate::device::state::{Request, State};
use crate::history::Context;
use crate::ids::{BlockId, ListId, PoolId, StreamKey};
use crate::mix::BuildMix;
use crate::page::LastUse;
use crate::size::{MIN_BLOCK_SIZE, ROUND_LARGE};
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

/// Blocks of the default pool that another stream uses, or used last.
#[derive(Debug, Default)]
pub(in crate::device) struct Guests {
    /// Live and pending ones, which have the flag [`GUEST`], and whose they are.
    pub using: HashMap<BlockId, StreamKey, BuildMix>,
    /// Bytes in these.
    pub bytes: usize,
    /// The most bytes that were in such blocks at once.
    pub most: usize,
    /// Freed ones.
    pub returning: Returning,
    /// The list that holds the large blocks of all streams: see [`shared`](super::shared).
    pub shared: Option<ListId>,
    /// Lists are shared as soon as two streams have large blocks, and streams wait for each other where memory would be
    /// mapped: for tests.
    pub share_eagerly: bool,
    /// Blocks are lent whenever memory would have to be mapped: for tests.
    eager: bool,
}

impl State {
    /// The stream that a block was handed out to, or its own.
    pub(in crate::device) fn stream_of(&self, id: BlockId) -> StreamKey {
        let block = &self.arena[id];
        let guest = (block.flags & GUEST != 0).then(|| self.guests.using.get(&id));
        let own = self.lists[block.list].stream;
        guest.flatten().copied().unwrap_or(own)
    }

    /// A guest was freed, and its events are over.
    #[cold]
    #[inline(never)]
    pub(in crate::device) fn begin_return(&mut self, id: BlockId) {
        let stream = self.stream_of(id);
        let tick = self.tick;
        self.forget_guest(id);
        self.put_returning(id, LastUse { stream, tick });
    }

    /// A block that is live or pending is another stream's than its list's.
    pub(super) fn note_guest(&mut self, id: BlockId, stream: StreamKey) {
        // A marked block is freed without a look at its flags.
        self.arena.marks.clear(id);
        self.arena[id].flags |= GUEST;
        if self.guests.using.insert(id, stream).is_none() {
            self.guests.bytes += self.arena[id].size;
            self.guests.most = self.guests.most.max(self.guests.bytes);
        }
    }

    /// It no longer is.
    pub(super) fn forget_guest(&mut self, id: BlockId) {
        self.arena[id].flags &= !GUEST;
        if self.guests.using.remove(&id).is_some() {
            self.guests.bytes -= self.arena[id].size;
        }
    }

    /// A block that is in no list is to return. It merges with neighbours that the same stream used last.
    pub(super) fn put_returning(&mut self, mut id: BlockId, mut used: LastUse) {
        let (prev, next) = (self.arena[id].prev, self.arena[id].next);
        if let Some(other) = self.take_alike(next, used.stream) {
            used.tick = used.tick.max(other.tick);
            self.arena.merge_right(id, next);
        }
        if let Some(other) = self.take_alike(prev, used.stream) {
            used.tick = used.tick.max(other.tick);
            self.arena.merge_right(prev, id);
            id = prev;
        }
        self.arena[id].state = BlockState::Returning;
        self.guests.returning.insert(id, &self.arena[id], used);
    }

    /// Takes a block out of those to return, if it is one that the stream used last.
    fn take_alike(&mut self, id: BlockId, stream: StreamKey) -> Option<LastUse> {
        let used = self.guests.returning.last_use(id.some()?)?;
        (used.stream == stream).then(|| self.take_from_returning(id))?
    }

    /// Takes a block out of those to return; it is in no list then.
    pub(super) fn take_from_returning(&mut self, id: BlockId) -> Option<LastUse> {
        let used = self.guests.returning.remove(id, &self.arena[id])?;
        self.arena[id].state = BlockState::Pending;
        Some(used)
    }

    /// Blocks whose last use is over for their lists' streams are free again.
    pub(in crate::device) fn return_guests(&mut self) {
        if self.guests.returning.is_empty() {
            return;
        }
        let home = |id: BlockId| self.lists[self.arena[id].list].stream;
        let returning = self.guests.returning.iter();
        let mut over: Vec<(BlockId, LastUse)> = returning
            .filter(|&(id, used)| self.fences.is_over_for(home(id), used))
            .collect();
        // A stream may only wait for the last use on the device: its event that was recorded before that tells nothing
        // of these blocks.
        if over.iter().any(|(_, used)| !self.fences.passed(*used)) {
            self.tick += 1;
        }
        over.sort_unstable_by_key(|(id, _)| *id);
        for (id, _) in over {
            if self.take_from_returning(id).is_some() {
                self.return_to_list(id, self.arena[id].list);
            }
        }
    }

    /// The last uses of blocks that are to return.
    pub(in crate::device) fn returning(&self) -> impl Iterator<Item = LastUse> + '_ {
        self.guests.returning.iter().map(|(_, used)| used)
    }

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

    /// The smallest block that the request's stream was the last to use and that is large enough.
    pub(super) fn find_returning(&self, request: &Request) -> Option<BlockId> {
        let align = self.settings.base_addr_aligned_size.max(1);
        let aligned =
            |id: &BlockId| request.size < ROUND_LARGE || self.arena[*id].addr.is_multiple_of(align);
        let returning = &self.guests.returning;
        let mut fit = returning.of_stream(request.stream, request.small, request.size);
        fit.find(aligned)
    }

    /// Hands a block out again that is to return.
    pub(super) fn take_returning(
        &mut self,
        mut id: BlockId,
        request: &Request,
        context: &Option<Arc<Context>>,
    ) -> usize {
        let used = self.take_from_returning(id);
        if self.arena[id].size - request.size >= MIN_BLOCK_SIZE {
            let rest = id;
            id = self.split_front(rest, request.size);
            if let Some(used) = used {
                self.arena[rest].state = BlockState::Returning;
                let block = &self.arena[rest];
                self.guests.returning.insert(rest, block, used);
            }
        }
        self.make_guest(id, request, context)
    }

    /// Takes part of a free block of another stream, or all of it, for a request.
    pub(super) fn lend_block(
        &mut self,
        mut id: BlockId,
        request: &Request,
        context: &Option<Arc<Context>>,
    ) -> usize {
        let list = self.arena[id].list;
        self.lists[list].free.remove(&mut self.arena, id);
        id = self.cut(id, list, request);
        self.make_guest(id, request, context)
    }

    /// Hands out a block that is in no list to another stream than its own.
    pub(in crate::device) fn make_guest(
        &mut self,
        id: BlockId,
        request: &Request,
        context: &Option<Arc<Context>>,
    ) -> usize {
        self.note_guest(id, request.stream);
        self.ladder.blocks_lent += 1;
        self.make_live(id, request, context.clone())
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
