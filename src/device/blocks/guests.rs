//! Blocks that another stream than their own uses, or used last: guests. Pure.
//!
//! ```text
//! Free --handed out to stream B--> Live (guest) --freed--> Returning --B has passed it--> Free
//!                                       ^--------- request of B -----/
//! ```
//!
//! Which blocks are lent, and when all streams' large blocks come into one list, is decided in
//! [`streams`](crate::device::streams).

use std::collections::HashMap;
use std::sync::Arc;

use super::returning::Returning;
use crate::block::{BlockState, GUEST};
use crate::device::state::{Request, State};
use crate::history::Context;
use crate::ids::{BlockId, ListId, PoolId, StreamKey};
use crate::mix::BuildMix;
use crate::page::LastUse;
use crate::size::{MIN_BLOCK_SIZE, ROUND_LARGE};

/// Free blocks of the home that a guest looks at, the smallest that fit.
const LOOKS: usize = 32;
/// A block whose last use is over is preferred, unless it exceeds the smallest that fits by more than this part of it.
const FIT: usize = 4;

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
    /// The list that holds the large blocks of all streams: see [`shared`](crate::device::streams).
    pub shared: Option<ListId>,
    /// Lists are shared as soon as two streams have large blocks, and streams wait for each other where memory would be
    /// mapped: for tests.
    pub share_eagerly: bool,
    /// Blocks are lent whenever memory would have to be mapped: for tests.
    pub eager: bool,
}

impl State {
    /// The stream that a block was handed out to, or its own.
    pub fn stream_of(&self, id: BlockId) -> StreamKey {
        let block = &self.arena[id];
        let guest = (block.flags & GUEST != 0).then(|| self.guests.using.get(&id));
        let own = self.lists[block.list].stream;
        guest.flatten().copied().unwrap_or(own)
    }

    /// A guest was freed, and its events are over.
    #[cold]
    #[inline(never)]
    pub fn begin_return(&mut self, id: BlockId) {
        let stream = self.stream_of(id);
        let tick = self.tick;
        self.forget_guest(id);
        self.put_returning(id, LastUse { stream, tick });
    }

    /// A block that is live or pending is another stream's than its list's.
    pub fn note_guest(&mut self, id: BlockId, stream: StreamKey) {
        // A marked block is freed without a look at its flags.
        self.arena.marks.clear(id);
        self.arena[id].flags |= GUEST;
        if self.guests.using.insert(id, stream).is_none() {
            self.guests.bytes += self.arena[id].size;
            self.guests.most = self.guests.most.max(self.guests.bytes);
        }
    }

    /// It no longer is.
    pub fn forget_guest(&mut self, id: BlockId) {
        self.arena[id].flags &= !GUEST;
        if self.guests.using.remove(&id).is_some() {
            self.guests.bytes -= self.arena[id].size;
        }
    }

    /// A block that is in no list is to return. It merges with neighbours that the same stream used last.
    pub fn put_returning(&mut self, mut id: BlockId, mut used: LastUse) {
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
    pub fn take_from_returning(&mut self, id: BlockId) -> Option<LastUse> {
        let used = self.guests.returning.remove(id, &self.arena[id])?;
        self.arena[id].state = BlockState::Pending;
        Some(used)
    }

    /// Blocks whose last use is over for their lists' streams are free again.
    pub fn return_guests(&mut self) {
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
    pub fn returning(&self) -> impl Iterator<Item = LastUse> + '_ {
        self.guests.returning.iter().map(|(_, used)| used)
    }

    /// The smallest block that the request's stream was the last to use and that is large enough.
    pub fn find_returning(&self, request: &Request) -> Option<BlockId> {
        let align = self.settings.base_addr_aligned_size.max(1);
        let aligned =
            |id: &BlockId| request.size < ROUND_LARGE || self.arena[*id].addr.is_multiple_of(align);
        let returning = &self.guests.returning;
        let mut fit = returning.of_stream(request.stream, request.small, request.size);
        fit.find(aligned)
    }

    /// Hands a block out again that is to return.
    pub fn take_returning(
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
    pub fn lend_block(
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
    pub fn make_guest(
        &mut self,
        id: BlockId,
        request: &Request,
        context: &Option<Arc<Context>>,
    ) -> usize {
        self.note_guest(id, request.stream);
        self.ladder.blocks_lent += 1;
        self.make_live(id, request, context.clone())
    }

    /// Whether a request is served from the blocks of all streams.
    pub fn is_shared(&self, request: &Request) -> bool {
        self.guests.shared == Some(request.list)
    }

    /// The list of the blocks of all streams, for requests that are served from it.
    #[inline]
    pub fn shared_list(&self, pool: PoolId, small: bool, virtual_memory: bool) -> Option<ListId> {
        let goes_there = |_: &ListId| pool == PoolId::DEFAULT && !small && virtual_memory;
        self.guests.shared.filter(goes_there)
    }

    /// The list that serves a request by now, where it was made before all streams' blocks came into one.
    pub fn shared_since(&self, request: &Request) -> Option<ListId> {
        let shared = self.shared_list(request.pool, request.small, request.virtual_memory)?;
        (request.list != shared).then_some(shared)
    }

    /// A request as if its list's own stream made it.
    pub fn at_home(&self, request: &Request) -> Request {
        Request {
            stream: self.lists[request.list].stream,
            guest: false,
            ..*request
        }
    }

    /// The last use of a free block, or of one that is to return.
    pub fn last_use(&self, id: BlockId) -> LastUse {
        let stream = self.lists[self.arena[id].list].stream;
        let returning = self.guests.returning.last_use(id);
        returning.unwrap_or_else(|| LastUse {
            stream,
            tick: self.freed_at(id),
        })
    }

    /// The block for a guest's request that needs no wait: freed by the guest itself, or long enough ago.
    pub fn find_as_guest(&self, request: &Request) -> Option<BlockId> {
        let own = self.find_returning(request);
        let own_size = own.map_or(usize::MAX, |id| self.arena[id].size);
        let free = &self.lists[request.list].free;
        let mut most = usize::MAX;
        for id in free.iter_from(&self.arena, request.size).take(LOOKS) {
            let size = self.arena[id].size;
            most = most.min(size + size / FIT);
            if size >= own_size || size > most {
                break;
            }
            if self.fences.is_over_for(request.stream, self.last_use(id)) {
                return Some(id);
            }
        }
        own
    }

    /// Hands a block to a guest, for whom its last use is over.
    pub fn hand_out_to_guest(
        &mut self,
        id: BlockId,
        request: &Request,
        context: &Option<Arc<Context>>,
    ) -> usize {
        debug_assert!(self.fences.is_over_for(request.stream, self.last_use(id)));
        if self.arena[id].state == BlockState::Returning {
            self.take_returning(id, request, context)
        } else {
            self.lend_block(id, request, context)
        }
    }
}
