//! Events of freed blocks: asking, waiting, and returning blocks whose last use is over.

use crate::device::DeviceAllocator;
use crate::device::state::{Request, State};
use crate::driver::{DriverError, DriverResult, EventHandle, StreamToken, UNSUPPORTED_CODE};
use crate::error::Result;
use crate::ids::{BlockId, PoolId};
use crate::stream::{PendingUse, Use};
use crate::sync::MutexGuard;

/// Completed events handled at the most by an allocation that may be served without them: bounds its latency.
/// What is left is handled by the next ones. A request that nothing free serves handles all.
const REAP_LIMIT: usize = 64;

/// The default stream's number among PyTorch's.
const DEFAULT_STREAM: i64 = 0;

impl State {
    /// One event of the block has completed.
    pub(super) fn event_done(&mut self, done: PendingUse) {
        if let Some(id) = self.end_event(done) {
            self.complete_free(id, None);
        }
    }

    /// The same, while kept blocks may stay.
    fn event_done_keeping(&mut self, done: PendingUse) {
        if let Some(id) = self.end_event(done) {
            self.complete_free_keeping(id);
        }
    }

    pub(super) fn use_done(&mut self, id: BlockId) {
        if let Some(id) = self.end_use(id) {
            self.complete_free(id, None);
        }
    }

    /// Returns the event's block if it waits for no other.
    fn end_event(&mut self, done: PendingUse) -> Option<BlockId> {
        if done.last {
            self.events.idle.push(done.event);
        }
        self.end_use(done.block)
    }

    fn end_use(&mut self, id: BlockId) -> Option<BlockId> {
        let events = &mut self.arena[id].events;
        *events -= 1;
        (*events == 0).then_some(id)
    }

    /// The oldest block on its way back to a request's list that is large enough for it, and a stream that it
    /// waits for; with `shortly`, only one that the default stream alone still uses. What other streams do may
    /// depend on other processes, and these on what this thread has yet to submit: a message sent is waited for
    /// only where the stock allocator would wait for the device.
    pub(in crate::device) fn coming_back(
        &self,
        request: &Request,
        shortly: bool,
    ) -> Option<(StreamToken, BlockId)> {
        let fits = |stream: StreamToken, id: BlockId| {
            let block = &self.arena[id];
            let large_enough = block.list == request.list && block.size >= request.size;
            large_enough && (!shortly || (stream.id == DEFAULT_STREAM && block.events == 1))
        };
        let mut pending = self.events.pending.iter();
        let (stream, found) = pending.find(|(stream, pending)| fits(*stream, pending.block))?;
        Some((stream, found.block))
    }

    fn pool_of(&self, id: BlockId) -> PoolId {
        self.lists[self.arena[id].list].pool
    }
}

impl DeviceAllocator {
    /// Records the events that are still to be recorded, and returns all blocks whose events have completed.
    pub(in crate::device) fn reap_events(&self, state: &mut MutexGuard<'_, State>) {
        self.fence_deferred(state);
        self.reap_recorded(state, usize::MAX, State::event_done);
    }

    /// Returns some of the blocks whose events have completed, or keeps them.
    pub(in crate::device) fn reap_some(&self, state: &mut MutexGuard<'_, State>) {
        self.reap_recorded(state, REAP_LIMIT, State::event_done_keeping);
    }

    /// Tells of blocks whose events have completed, without waiting, `budget` events at the most. A query that fails
    /// counts as not complete.
    fn reap_recorded(
        &self,
        state: &mut MutexGuard<'_, State>,
        mut budget: usize,
        done: impl Fn(&mut State, PendingUse),
    ) {
        for stream in 0..state.events.pending.streams() {
            let mut completed = None;
            while let Some(head) = state.events.pending.head(stream) {
                if budget == 0 {
                    return;
                }
                let known = completed == Some(head.event);
                if !known && !matches!(self.driver.event_query(head.event), Ok(true)) {
                    state.events.traffic.note();
                    break;
                }
                // The event may be used again from the last of its blocks on.
                completed = (!head.last).then_some(head.event);
                state.events.pending.pop(stream);
                done(state, head);
                budget -= 1;
            }
        }
    }

    /// Records the events that freed blocks still need: one on each stream for all blocks of a pool. Uses within a
    /// graph capture need none once it has ended: the graph orders them. While any is under way they are as
    /// they were: the capture itself may go on using the memory. So are uses on a stream that any thread
    /// captures: the event would become part of the graph.
    ///
    /// Events are recorded with the lock released: recording goes through the client's task queue and may wait
    /// for room in it, while the queue's consumer may be allocating.
    pub(in crate::device) fn fence_deferred(&self, state: &mut MutexGuard<'_, State>) {
        if state.events.deferred.is_empty() {
            return;
        }
        state.events.deferred_bytes = 0;
        let mut deferred = std::mem::take(&mut state.events.deferred);
        let mut waiting = std::mem::take(&mut state.events.to_fence);
        let capturing = state.captures > 0;
        deferred.retain(|&id| {
            let block = &state.arena[id];
            let mut uses = state.events.uses.of(block).iter();
            if capturing && uses.any(|used| self.is_captured(used)) {
                state.events.deferred_bytes += block.size;
                return true;
            }
            let uses = state.take_uses(id);
            let outside = uses.iter().filter(|used| !used.captured);
            let before = waiting.len();
            waiting.extend(outside.map(|used| (used.stream, id)));
            state.events.uses.recycle(uses);
            state.arena[id].events = (waiting.len() - before) as u16;
            if waiting.len() == before {
                state.complete_free(id, None);
            }
            false
        });
        state.events.deferred = deferred;
        state.events.detached += waiting.len();
        let resets = state.events.resets;
        waiting.sort_unstable_by_key(|(stream, id)| (stream.device, stream.id, state.pool_of(*id)));
        let mut left = &waiting[..];
        while let Some((stream, first)) = left.first().copied() {
            let pool = state.pool_of(first);
            let alike =
                |(of, id): &(StreamToken, BlockId)| (*of, state.pool_of(*id)) == (stream, pool);
            let group;
            (group, left) = left.split_at(left.iter().take_while(|use_| alike(use_)).count());
            let recorded = self.record_event(state, stream);
            state.events.detached -= group.len();
            if state.events.resets != resets {
                // Given up while the event was recorded, as all others are that were.
                state
                    .events
                    .idle
                    .extend(recorded.ok().map(|(event, _)| event));
                group.iter().for_each(|(_, id)| state.use_done(*id));
                continue;
            }
            match recorded {
                Ok(recorded) => state.events.pending.push_all(stream, recorded, group),
                // Nothing is lost: the blocks stay out of use until the device has been synchronised.
                Err(_) => {
                    let tick = state.tick;
                    let blocks = group.iter().map(|(_, id)| (*id, tick));
                    state.events.unfenced.extend(blocks);
                }
            }
        }
        waiting.clear();
        state.events.to_fence = waiting;
    }

    /// Whether a use is part of a graph that is being captured, or an event after it would be.
    fn is_captured(&self, used: &Use) -> bool {
        used.captured || self.driver.is_stream_capturing(used.stream)
    }

    /// Records an event on a stream, with the lock released. Whether streams can wait for it: where a plan may need that.
    fn record_event(
        &self,
        state: &mut MutexGuard<'_, State>,
        stream: StreamToken,
    ) -> DriverResult<(EventHandle, bool)> {
        let event = state.events.idle.pop();
        let planned = state.planning.is_followed() && self.driver.orders_streams();
        MutexGuard::unlocked(state, || {
            let event = match event {
                Some(event) => event,
                None => self.driver.event_create(self.id)?,
            };
            let unsupported = |error: &DriverError| error.code == UNSUPPORTED_CODE;
            let waited_for = planned.then(|| self.driver.event_record_for_streams(event, stream));
            let waited_for = waited_for.filter(|it| !it.as_ref().is_err_and(unsupported));
            let for_streams = waited_for.is_some();
            match waited_for.unwrap_or_else(|| self.driver.event_record(event, stream)) {
                Ok(()) => Ok((event, for_streams)),
                Err(error) => {
                    // An event that can't be recorded may be broken: don't use it again.
                    let _ = self.driver.event_destroy(event);
                    Err(error)
                }
            }
        })
    }

    /// Waits for the event of a block on a stream, and returns the blocks whose events completed before it there.
    pub(in crate::device) fn await_block(
        &self,
        state: &mut MutexGuard<'_, State>,
        stream: StreamToken,
        block: BlockId,
    ) -> DriverResult<()> {
        let taken = state.events.pending.take_through(stream, block);
        let Some(last) = taken.last().copied() else {
            return Ok(());
        };
        state.events.detached += taken.len();
        let resets = state.events.resets;
        let waited = MutexGuard::unlocked(state, || self.driver.event_synchronize(last.event));
        state.events.detached -= taken.len();
        match waited {
            _ if state.events.resets != resets => {
                taken.into_iter().for_each(|it| state.event_done(it))
            }
            Ok(()) => {
                let left = self.return_completed(state, taken, last.event);
                state.events.pending.put_back(stream, left);
            }
            Err(_) => state.events.pending.put_back(stream, taken),
        }
        waited
    }

    /// Returns the blocks whose events have completed, of which `known` is one; gives back the others. A queue is in
    /// the order in which threads told of their events, after these had been recorded: what lies before an event that
    /// has completed may still be under way.
    pub(in crate::device) fn return_completed(
        &self,
        state: &mut State,
        taken: Vec<PendingUse>,
        known: EventHandle,
    ) -> Vec<PendingUse> {
        let mut completed = known;
        let mut left: Vec<PendingUse> = Vec::new();
        for pending in taken {
            // An event that several blocks share has one answer: it must not be free for other uses while one of them
            // waits for it.
            let waits = left
                .last()
                .is_some_and(|other| other.event == pending.event);
            let over = [completed, known].contains(&pending.event)
                || !waits && matches!(self.driver.event_query(pending.event), Ok(true));
            if over {
                completed = pending.event;
                state.event_done(pending);
            } else {
                left.push(pending);
            }
        }
        left
    }

    /// Waits for the outstanding events of `pool` (`None`: of all) and returns the blocks; also those without an
    /// event that were freed up to `tick`, if the device has been synchronised since.
    pub(in crate::device) fn drain_events(
        &self,
        state: &mut MutexGuard<'_, State>,
        tick: Option<u64>,
        pool: Option<PoolId>,
    ) -> Result<()> {
        // A block may have returned, served and be among them again since the device was waited for.
        let (over, left): (Vec<_>, Vec<_>) = std::mem::take(&mut state.events.unfenced)
            .into_iter()
            .partition(|(_, freed)| tick.is_some_and(|tick| *freed <= tick));
        state.events.unfenced = left;
        over.into_iter().for_each(|(id, _)| state.use_done(id));
        let mut waiting = state.events.pending.drain();
        if let Some(pool) = pool {
            for (stream, pending) in std::mem::take(&mut waiting) {
                if state.pool_of(pending.block) == pool {
                    waiting.push((stream, pending));
                } else {
                    state.events.pending.push(stream, pending);
                }
            }
        }
        state.events.detached += waiting.len();
        let resets = state.events.resets;
        let mut failure = None;
        for (stream, pending) in waiting {
            let waited = match failure {
                None => {
                    MutexGuard::unlocked(state, || self.driver.event_synchronize(pending.event))
                }
                Some(error) => Err(error),
            };
            state.events.detached -= 1;
            match waited {
                Ok(()) => state.event_done(pending),
                Err(_) if state.events.resets != resets => state.event_done(pending),
                Err(error) => {
                    state.events.pending.push(stream, pending);
                    failure = Some(error);
                }
            }
        }
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Returns every block that waits for events to its list without waiting: for a device that is
    /// being reset, whose events will never complete.
    pub fn drop_pending_events(&self) {
        let mut state = self.state.lock();
        state.events.resets += 1;
        for (_, pending) in state.events.pending.drain() {
            state.event_done(pending);
        }
        for (id, _) in std::mem::take(&mut state.events.unfenced) {
            state.use_done(id);
        }
        for id in std::mem::take(&mut state.events.deferred) {
            let uses = state.take_uses(id);
            state.events.uses.recycle(uses);
            state.use_done(id);
        }
        state.events.deferred_bytes = 0;
        // How far streams have come is asked anew: another device may be the one that is reset.
        let fences = state.fences.take_outstanding();
        state.events.idle.extend(fences);
        self.unlock(state);
    }
}
