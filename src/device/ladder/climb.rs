//! The ladder that a miss climbs: each rung is tried only when the ones before it did not serve the request. A table of the
//! rungs is in `docs/design.md`, *The reclaim ladder*.

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;

use super::transit::NAPS;
use crate::config::{Rung, SkippedRungs};
use crate::device::DeviceAllocator;
use crate::device::paging::Refusal;
use crate::device::state::{Request, State};
use crate::driver::StreamToken;
use crate::error::{AllocError, Result};
use crate::history::{Caller, Context};
use crate::ids::{BlockId, PoolId};
use crate::stats::Ladder;
use crate::sync::MutexGuard;

/// Shortages met with no more than needed, before all is returned that is idle.
const PATIENCE: u64 = 1;

/// Attempts of a request at the most, while others that fail give back what it lacked.
const ATTEMPTS: u32 = 8;

/// How far a request came.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    /// What was tried, for the report.
    pub tried: Vec<&'static str>,
    /// While memory was last asked for, another request gave up what it had got, or another thread held some for a
    /// moment.
    missed: bool,
    /// It counts as one that was tried again.
    retried: bool,
}

impl Attempt {
    /// Notes what is tried, unless it was noted last.
    fn note(&mut self, what: &'static str) {
        if self.tried.last() != Some(&what) {
            self.tried.push(what);
        }
    }
}

/// The block's address, or why there is none and the size asked for; an error where the driver failed.
pub(super) type Climbed = Result<std::result::Result<usize, (Refusal, usize)>>;

/// How a climb ends before its last rung.
enum End {
    Over(Climbed),
    /// It begins anew, with the blocks of all streams, which came into one list.
    Anew,
}

/// A rung that does not end the climb goes on.
type Step<T = ()> = ControlFlow<End, T>;

/// The counter of requests that a rung served.
type Counter = fn(&mut Ladder) -> &mut u64;

fn served(addr: usize) -> Step {
    Break(End::Over(Ok(Ok(addr))))
}

fn or_end<T>(outcome: std::result::Result<T, impl Into<AllocError>>) -> Step<T> {
    match outcome {
        Ok(value) => Continue(value),
        Err(error) => Break(End::Over(Err(error.into()))),
    }
}

/// One climb of one request.
struct Climb<'climb, 'lock> {
    device: &'climb DeviceAllocator,
    state: &'climb mut MutexGuard<'lock, State>,
    request: &'climb Request,
    context: &'climb Option<Arc<Context>>,
    attempt: &'climb mut Attempt,
    /// Of a new segment, bytes.
    size: usize,
    skipped: SkippedRungs,
    /// The calling thread captures a graph, so that it may wait neither for the device nor for events.
    capturing: bool,
    /// Why the driver gave no segment the last time it was asked for one.
    failure: Option<AllocError>,
}

impl DeviceAllocator {
    /// Climbs once more when another thread may have given back what was missing, and waits for one that has it.
    pub(super) fn climb_again(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        context: &Option<Arc<Context>>,
        attempt: &mut Attempt,
    ) -> Climbed {
        let mut naps = NAPS;
        for _ in 1..ATTEMPTS {
            let outcome = self.climb(state, request, context, attempt);
            let full = matches!(outcome, Ok(Err((Refusal::Full, _))));
            if !full || !(self.await_transit(state, &mut naps) || attempt.missed) {
                return outcome;
            }
            *attempt = Attempt {
                retried: attempt.retried,
                ..Attempt::default()
            };
        }
        self.climb(state, request, context, attempt)
    }

    /// Climbs once.
    pub(super) fn climb(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        context: &Option<Arc<Context>>,
        attempt: &mut Attempt,
    ) -> Climbed {
        let mut request = *request;
        loop {
            let climb = Climb {
                device: self,
                size: state.settings.allocation_size(request.size),
                skipped: state.settings.skipped_rungs,
                capturing: self.in_capture(state),
                failure: None,
                request: &request,
                state: &mut *state,
                attempt: &mut *attempt,
                context,
            };
            match climb.run() {
                End::Over(outcome) => return outcome,
                End::Anew => {
                    let (bytes, stream) = (request.requested, request.stream);
                    request = state.request(bytes, self.pad, stream, request.pool);
                }
            }
        }
    }
}

impl Climb<'_, '_> {
    fn run(mut self) -> End {
        match self.rungs() {
            Break(end) => end,
            Continue(()) => {
                let refused = Ok(Err((Refusal::Full, self.size)));
                End::Over(self.failure.map_or(refused, Err))
            }
        }
    }

    fn rungs(&mut self) -> Step {
        self.state.ladder.misses += 1;
        self.take_completed_events()?;
        self.run_callbacks()?;
        self.await_rather_than_move()?;
        self.share_blocks()?;
        self.collect_garbage()?;
        self.obtain()?;
        // Only now is it known that the driver has no more.
        self.share_blocks()?;
        self.serve_from_overflow()?;
        self.return_oversize()?;
        self.await_blocks()?;
        if self.capturing {
            self.attempt.note("nothing that a graph capture forbids");
            return Continue(());
        }
        self.return_idle()
    }

    fn take_completed_events(&mut self) -> Step {
        let skipped = self.skipped.has(Rung::CompletedEvents);
        if self.capturing || skipped || !self.state.events.are_waited_for() {
            return Continue(());
        }
        self.attempt.note("completed events");
        self.device.reap_events(self.state);
        self.try_cache(|ladder| &mut ladder.completed_events)
    }

    /// The client's free-memory callbacks.
    fn run_callbacks(&mut self) -> Step {
        if self.skipped.has(Rung::Callbacks) {
            return Continue(());
        }
        let device = self.device;
        let freed = MutexGuard::unlocked(self.state, || {
            let _program = Caller::leave();
            device.driver.run_free_callbacks(device.id)
        });
        if !or_end(freed)? {
            return Continue(());
        }
        self.attempt.note("free-memory callbacks");
        self.try_cache(|ladder| &mut ladder.callbacks)
    }

    /// A block of this list that other streams still use, rather than many pages from elsewhere.
    fn await_rather_than_move(&mut self) -> Step {
        if !self.request.virtual_memory || !self.may_await() {
            return Continue(());
        }
        while let Some((stream, block)) = self.device.worth_waiting_for(self.state, self.request) {
            self.await_block(stream, block)?;
        }
        Continue(())
    }

    /// The blocks of all streams come into one list, where that helps.
    fn share_blocks(&mut self) -> Step {
        if !self.device.share_blocks(self.state, self.request) {
            return Continue(());
        }
        self.attempt.note("memory of other streams");
        Break(End::Anew)
    }

    fn collect_garbage(&mut self) -> Step {
        let threshold = self.state.settings.garbage_collection_threshold;
        let collects = self.state.budget.limit.is_some() && threshold > 0.0;
        if collects && !self.capturing {
            self.attempt.note("garbage collection");
            or_end(self.device.collect_garbage(self.state))?;
        }
        Continue(())
    }

    /// A new segment, or pages mapped.
    fn obtain(&mut self) -> Step {
        self.attempt.note(if self.request.virtual_memory {
            "mapping memory, also that of idle pages"
        } else {
            "a new segment"
        });
        self.try_growth(|ladder| &mut ladder.growth)
    }

    /// A free block in a pool that was opted in for overflow.
    fn serve_from_overflow(&mut self) -> Step {
        let skipped = self.skipped.has(Rung::OverflowPools);
        if self.request.pool != PoolId::DEFAULT || skipped {
            return Continue(());
        }
        let (bytes, stream) = (self.request.requested, self.request.stream);
        for pool in self.state.pools.overflow_pools() {
            if self.state.sleep.has(pool) {
                continue;
            }
            self.attempt.note("a pool for overflow");
            let overflow = self.state.request(bytes, self.device.pad, stream, pool);
            if let Some(id) = self.state.find(&overflow) {
                self.state.ladder.overflow_pools += 1;
                return served(self.state.hand_out(id, &overflow, self.context.clone()));
            }
        }
        Continue(())
    }

    /// Oversize blocks, just enough of them. Waiting for their last use would break a capture.
    fn return_oversize(&mut self) -> Step {
        if self.capturing || self.skipped.has(Rung::Oversize) {
            return Continue(());
        }
        if or_end(self.device.release_oversize(self.state, self.request))? {
            self.attempt.note("returning oversize blocks");
            self.try_growth(|ladder| &mut ladder.oversize)?;
        }
        Continue(())
    }

    /// Blocks that wait for events: one that fits, or, where memory can move, all.
    fn await_blocks(&mut self) -> Step {
        if !self.may_await() {
            return Continue(());
        }
        while let Some((stream, block)) = self.state.coming_back(self.request, false) {
            self.await_block(stream, block)?;
        }
        if self.request.virtual_memory && self.state.events.are_waited_for() {
            self.attempt.note("waiting for other streams");
            self.device.fence_deferred(self.state);
            or_end(self.device.drain_events(self.state, None, None))?;
            self.try_cache(|ladder| &mut ladder.awaited_events)?;
            self.try_growth(|ladder| &mut ladder.awaited_events)?;
        }
        Continue(())
    }

    /// Idle memory goes back once the device has nothing left to do: oldest first and no more than needed; everything when
    /// that was not enough.
    fn return_idle(&mut self) -> Step {
        self.state.stats.num_alloc_retries += i64::from(!self.attempt.retried);
        self.attempt.retried = true;
        self.state.budget.shortages += 1;
        self.state.stats.num_sync_all_streams += 1;
        self.attempt
            .note("waiting for the device and returning all that is idle");
        let virtual_memory = self.request.virtual_memory;
        // When memory is short again and again, fixed segments are returned all at once: what is left of a
        // large one is split for smaller requests, and soon missed (measured: up to ten times as many
        // waits for the device). So it is with sharded programs from the first time on (`docs/memory.md`, *Fixed segments*).
        let impatient = self.state.budget.shortages > PATIENCE || self.state.is_sharded();
        let all_at_once = impatient && !virtual_memory && !self.skipped.has(Rung::FullRelease);
        // Completed events may have freed a block that fits.
        if !all_at_once && !self.skipped.has(Rung::PartialRelease) {
            let enough = Some(self.size);
            or_end(self.device.make_room(self.state, enough, virtual_memory))?;
            self.try_cache(|ladder| &mut ladder.partial_release)?;
            self.try_growth(|ladder| &mut ladder.partial_release)?;
        }
        if !self.skipped.has(Rung::FullRelease) {
            or_end(self.device.make_room(self.state, None, virtual_memory))?;
            self.try_cache(|ladder| &mut ladder.full_release)?;
            self.try_growth(|ladder| &mut ladder.full_release)?;
        }
        // Another thread may have got a segment meanwhile, and blocks in pools for overflow have come back.
        self.try_cache(|ladder| &mut ladder.full_release)?;
        self.serve_from_overflow()
    }

    fn may_await(&self) -> bool {
        !self.capturing && !self.skipped.has(Rung::AwaitedEvents)
    }

    /// Waits for a block that other streams use.
    fn await_block(&mut self, stream: StreamToken, block: BlockId) -> Step {
        self.attempt
            .note("waiting for blocks that other streams use");
        or_end(self.device.await_block(self.state, stream, block))?;
        self.try_cache(|ladder| &mut ladder.awaited_events)?;
        // A guest's block is not in the list yet.
        if self.state.is_shared(self.request)
            && let Some(addr) = self
                .device
                .serve_shared(self.state, self.request, self.context)
        {
            self.state.ladder.awaited_events += 1;
            return served(addr);
        }
        Continue(())
    }

    fn try_cache(&mut self, counter: Counter) -> Step {
        // It may have fallen asleep while the lock was released.
        or_end(self.state.sleep.refuse(self.request.pool, self.device.id))?;
        let Some(id) = self.state.find(self.request) else {
            return Continue(());
        };
        *counter(&mut self.state.ladder) += 1;
        served(self.state.hand_out(id, self.request, self.context.clone()))
    }

    fn try_growth(&mut self, counter: Counter) -> Step {
        let (before, moves) = (
            self.state.budget.failed_growths,
            self.state.is_memory_in_transit(),
        );
        let outcome = self
            .device
            .grow_any(self.state, self.request, self.size, self.context);
        if matches!(outcome, Ok(Err(Refusal::Full)))
            && self.state.shared_since(self.request).is_some()
        {
            // Another thread did that while the lock was released; it is never undone.
            return Break(End::Anew);
        }
        if !matches!(outcome, Ok(Ok(_))) {
            self.attempt.missed = moves || self.state.budget.failed_growths != before;
            self.state.budget.failed_growths += 1;
        }
        match outcome {
            Ok(Ok(addr)) => {
                *counter(&mut self.state.ladder) += 1;
                return served(addr);
            }
            Ok(Err(Refusal::Policy)) => {
                return Break(End::Over(Ok(Err((Refusal::Policy, self.size)))));
            }
            Ok(Err(Refusal::Full)) => self.failure = None,
            // Whatever the driver, or a pool's own allocator, gives for a reason, it may lack memory: codes for that differ.
            Err(error)
                if !self.request.virtual_memory || self.state.is_external(self.request.pool) =>
            {
                self.failure = Some(error);
            }
            Err(error) => return Break(End::Over(Err(error))),
        }
        Continue(())
    }
}
