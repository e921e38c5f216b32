//! Allocation: the hot path, and the ladder a miss climbs.

use std::sync::Arc;

use super::growth::Refusal;
use super::transit::NAPS;
use crate::config::Rung;
use crate::device::DeviceAllocator;
use crate::device::state::{Request, State};
use crate::driver::OUT_OF_MEMORY_CODE;
use crate::error::{AllocError, Result};
use crate::history::{Caller, Context};
use crate::ids::{MempoolId, PoolId, StreamKey};
use crate::size::MOST_BYTES;
use crate::sync::MutexGuard;

/// Shortages met with no more than needed, before all is returned that is idle.
const PATIENCE: u64 = 1;

/// Attempts of a request at the most, while others that fail give back what it lacked.
const ATTEMPTS: u32 = 8;

/// How far a request came.
#[derive(Debug, Default)]
struct Attempt {
    /// What was tried, for the report.
    tried: Vec<&'static str>,
    /// While memory was last asked for, another request gave up what it had got, or another thread held some for a
    /// moment.
    missed: bool,
    /// It counts as one that was tried again.
    retried: bool,
}

/// The block's address, or why there is none and the size asked for; an error where the driver failed.
type Climbed = Result<std::result::Result<usize, (Refusal, usize)>>;

impl DeviceAllocator {
    /// A block of at least `bytes` (> 0) for use on `stream`. Returns its address.
    #[inline]
    pub fn allocate(&self, bytes: usize, stream: StreamKey) -> Result<usize> {
        if bytes.wrapping_sub(1) < MOST_BYTES
            && let Some(addr) = self.allocate_cached(bytes, stream)
        {
            return Ok(addr);
        }
        self.allocate_in(bytes, stream, MempoolId::DEFAULT, None)
    }

    /// As [`Self::allocate`], from a private pool (`MempoolId::DEFAULT` for none) and with the client's
    /// context.
    pub fn allocate_in(
        &self,
        bytes: usize,
        stream: StreamKey,
        pool: MempoolId,
        context: Option<Arc<Context>>,
    ) -> Result<usize> {
        let bytes = bytes.min(MOST_BYTES);
        let mut caller = None; // Before the lock is taken, so that it goes after it.
        let mut state = self.state.lock_keeping();
        if context.is_some() && state.events_outstanding() {
            caller = Caller::enter(context.clone());
        }
        self.reap_before_allocation(&mut state);
        let pool = match pool {
            MempoolId::DEFAULT => PoolId::DEFAULT,
            id => state
                .pools
                .find(id)
                .ok_or(AllocError::UnknownPool { pool: id })?,
        };
        if state.captures > 0
            && let Some(private) = state.pools.get_mut(pool)
        {
            private.captured = true;
        }
        self.refuse_asleep(&state, pool)?;
        let mut request = state.request(bytes, self.pad, stream, pool);
        if state.planning.is_on()
            && let Some(addr) =
                self.serve_planned(&mut state, &mut request, &context, &mut caller)?
        {
            self.unlock(state);
            return Ok(addr);
        }
        let whole = state.quick.size_of_block(request.size);
        if pool == PoolId::DEFAULT
            && context.is_none()
            && !request.guest
            && let Some(addr) = state.take_kept::<true>(request.list, whole, request.size, bytes)
        {
            self.unlock(state);
            return Ok(addr);
        }
        let mut found = state.find(&request);
        if found.is_none() {
            let kept = !state.quick.is_empty();
            MutexGuard::catch_up(&mut state);
            if kept {
                found = state.find(&request);
            }
        }
        if let Some(id) = found {
            let addr = state.hand_out(id, &request, context);
            self.unlock(state);
            return Ok(addr);
        }
        if state.engine_open {
            state.pools.hold(pool);
            drop(state);
            self.choose_engine();
            state = self.state.lock_unseen();
            state.pools.unhold(pool);
            request = state.request(bytes, self.pad, stream, pool);
        }
        if caller.is_none() {
            caller = Caller::enter(context.clone());
        }
        let served = self.allocate_slow(state, request, context);
        drop(caller);
        served
    }

    #[inline]
    fn reap_before_allocation(&self, state: &mut MutexGuard<'_, State>) {
        if state.events_outstanding() && !state.traffic.pass() && !self.in_capture(state) {
            // Once memory was short, blocks are not kept from returning for the sake of fewer events.
            let short = state.device_full || state.failed_growths > 0;
            if short || state.traffic.fences() {
                self.fence_deferred(state);
            }
            self.reap_some(state);
            let ample = !short && state.may_keep() && state.is_ample();
            state.traffic.asked(ample);
        }
    }

    /// Each rung is tried only when the ones before it failed.
    #[cold]
    fn allocate_slow(
        &self,
        mut state: MutexGuard<'_, State>,
        request: Request,
        context: Option<Arc<Context>>,
    ) -> Result<usize> {
        let mut attempt = Attempt::default();
        // The pool may have no user any more: it must not be forgotten meanwhile.
        state.pools.hold(request.pool);
        if let Err(error) = self.settle_limit(&mut state) {
            state.pools.unhold(request.pool);
            self.unlock(state);
            return Err(error);
        }
        let pool = state.pools.id_of(request.pool);
        state.begin_climb();
        let mut outcome = self.climb_again(&mut state, &request, &context, &mut attempt);
        if let Err(AllocError::Driver(error)) = outcome
            && request.virtual_memory
            && state.gives_up_virtual_segments(error)
        {
            self.settle_engine(&mut state);
            attempt
                .tried
                .push("fixed segments, as the driver failed to map memory");
            let fixed = Request {
                virtual_memory: false,
                list: state
                    .lists
                    .of(request.pool, request.stream, request.small, false),
                guest: false,
                ..request
            };
            outcome = self.climb(&mut state, &fixed, &context, &mut attempt);
        }
        state.pools.unhold(request.pool);
        state.end_climb(matches!(outcome, Ok(Ok(_))));
        let tried = attempt.tried;
        match outcome {
            Ok(Ok(addr)) => {
                self.unlock(state);
                Ok(addr)
            }
            Ok(Err((Refusal::Full, size))) => {
                state.stats.num_ooms += 1;
                state.ladder.out_of_memory += 1;
                let report = self.report(state, &request, size, tried, OUT_OF_MEMORY_CODE);
                self.trace_out_of_memory(&request, pool, report.device_free, context);
                Err(AllocError::OutOfMemory(Box::new(report)))
            }
            Ok(Err((Refusal::Policy, size))) => {
                state.stats.num_oom_rejections += 1;
                Err(AllocError::Rejected(Box::new(self.report(
                    state,
                    &request,
                    size,
                    tried,
                    OUT_OF_MEMORY_CODE,
                ))))
            }
            Err(error) => {
                self.unlock(state);
                Err(error)
            }
        }
    }

    /// Climbs once more when another thread may have given back what was missing, and waits for one that has it.
    fn climb_again(
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

    /// Serves a request from a free block in a pool that was opted in for overflow.
    fn serve_from_overflow(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        context: &Option<Arc<Context>>,
        attempt: &mut Attempt,
    ) -> Option<usize> {
        let skipped = state.settings.skipped_rungs.has(Rung::OverflowPools);
        if request.pool != PoolId::DEFAULT || skipped {
            return None;
        }
        for pool in state.pools.overflow_pools() {
            if state.is_asleep(pool) {
                continue;
            }
            const OVERFLOW: &str = "a pool for overflow";
            if attempt.tried.last() != Some(&OVERFLOW) {
                attempt.tried.push(OVERFLOW);
            }
            let overflow = state.request(request.requested, self.pad, request.stream, pool);
            if let Some(id) = state.find(&overflow) {
                state.ladder.overflow_pools += 1;
                return Some(state.hand_out(id, &overflow, context.clone()));
            }
        }
        None
    }

    /// Begins anew, with the blocks of all streams, which came into one list.
    fn climb_shared(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        context: &Option<Arc<Context>>,
        attempt: &mut Attempt,
    ) -> Climbed {
        let shared = state.request(request.requested, self.pad, request.stream, request.pool);
        self.climb(state, &shared, context, attempt)
    }

    fn climb(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        context: &Option<Arc<Context>>,
        attempt: &mut Attempt,
    ) -> Climbed {
        macro_rules! try_cache {
            ($rung:ident) => {
                // It may have fallen asleep while the lock was released.
                self.refuse_asleep(state, request.pool)?;
                if let Some(id) = state.find(request) {
                    state.ladder.$rung += 1;
                    return Ok(Ok(state.hand_out(id, request, context.clone())));
                }
            };
        }
        let size = state.settings.allocation_size(request.size);
        // Why the driver gave no segment the last time it was asked for one.
        let mut failure;
        macro_rules! try_growth {
            ($rung:ident) => {
                let (before, moves) = (state.failed_growths, state.is_memory_in_transit());
                let outcome = self.grow_any(state, request, size, context);
                if matches!(outcome, Ok(Err(Refusal::Full))) && state.shared_since(request).is_some() {
                    // Another thread did that while the lock was released; it is never undone.
                    return self.climb_shared(state, request, context, attempt);
                }
                if !matches!(outcome, Ok(Ok(_))) {
                    attempt.missed = moves || state.failed_growths != before;
                    state.failed_growths += 1;
                }
                match outcome {
                    Ok(Ok(addr)) => {
                        state.ladder.$rung += 1;
                        return Ok(Ok(addr));
                    }
                    Ok(Err(Refusal::Policy)) => return Ok(Err((Refusal::Policy, size))),
                    Ok(Err(Refusal::Full)) => failure = None,
                    // Whatever the driver, or a pool's own allocator, gives for a reason, it may lack memory: codes for that differ.
                    Err(error) if !request.virtual_memory || state.is_external(request.pool) => failure = Some(error),
                    Err(error) => return Err(error),
                }
            };
        }
        macro_rules! await_blocks {
            ($next:expr) => {
                while let Some((stream, block)) = $next {
                    const WAIT: &str = "waiting for blocks that other streams use";
                    if attempt.tried.last() != Some(&WAIT) {
                        attempt.tried.push(WAIT);
                    }
                    self.await_block(state, stream, block)?;
                    try_cache!(awaited_events);
                    // A guest's block is not in the list yet.
                    if state.is_shared(request)
                        && let Some(addr) = self.serve_shared(state, request, context)
                    {
                        state.ladder.awaited_events += 1;
                        return Ok(Ok(addr));
                    }
                }
            };
        }
        state.ladder.misses += 1;
        let skipped = state.settings.skipped_rungs;
        let capturing = self.in_capture(state);
        // Completed events.
        if !capturing && state.has_events() && !skipped.has(Rung::CompletedEvents) {
            attempt.tried.push("completed events");
            self.reap_events(state);
            try_cache!(completed_events);
        }
        // The client's free-memory callbacks.
        if !skipped.has(Rung::Callbacks)
            && MutexGuard::unlocked(state, || {
                let _program = Caller::leave();
                self.driver.run_free_callbacks(self.id)
            })?
        {
            attempt.tried.push("free-memory callbacks");
            try_cache!(callbacks);
        }
        // A block of this list that other streams still use, rather than many pages from elsewhere.
        if request.virtual_memory && !capturing && !skipped.has(Rung::AwaitedEvents) {
            await_blocks!(self.worth_waiting_for(state, request));
        }
        if self.share_blocks(state, request) {
            attempt.tried.push("memory of other streams");
            return self.climb_shared(state, request, context, attempt);
        }
        // A new segment.
        let collects = state.limit.is_some() && state.settings.garbage_collection_threshold > 0.0;
        if collects && !capturing {
            attempt.tried.push("garbage collection");
            self.collect_garbage(state)?;
        }
        attempt.tried.push(if request.virtual_memory {
            "mapping memory, also that of idle pages"
        } else {
            "a new segment"
        });
        try_growth!(growth);
        // Only now is it known that the driver has no more.
        if self.share_blocks(state, request) {
            attempt.tried.push("memory of other streams");
            return self.climb_shared(state, request, context, attempt);
        }
        // Pools opted in for overflow.
        if let Some(addr) = self.serve_from_overflow(state, request, context, attempt) {
            return Ok(Ok(addr));
        }
        // Oversize blocks, just enough of them. Waiting for their last use would break a capture.
        let oversize = !capturing && !skipped.has(Rung::Oversize);
        if oversize && self.release_oversize(state, request)? {
            attempt.tried.push("returning oversize blocks");
            try_growth!(oversize);
        }
        // Blocks that wait for events: one that fits, or, where memory can move, all.
        let waits = !capturing && !skipped.has(Rung::AwaitedEvents);
        if waits {
            await_blocks!(state.coming_back(request, false));
        }
        if request.virtual_memory && waits && state.has_events() {
            attempt.tried.push("waiting for other streams");
            self.fence_deferred(state);
            self.drain_events(state, None, None)?;
            try_cache!(awaited_events);
            try_growth!(awaited_events);
        }
        // Idle memory, oldest first and no more than needed; everything when that was not enough.
        // Nothing of this is legal while the calling thread captures.
        if !capturing {
            state.stats.num_alloc_retries += i64::from(!attempt.retried);
            attempt.retried = true;
            state.shortages += 1;
            state.stats.num_sync_all_streams += 1;
            attempt
                .tried
                .push("waiting for the device and returning all that is idle");
            // Completed events may have freed a block that fits.
            // When memory is short again and again, fixed segments are returned all at once: what is left of a
            // large one is split for smaller requests, and soon missed (measured: up to ten times as many
            // waits for the device).
            let again = !request.virtual_memory && state.shortages > PATIENCE;
            let all_at_once = again && !skipped.has(Rung::FullRelease);
            if !all_at_once && !skipped.has(Rung::PartialRelease) {
                self.make_room(state, Some(size), request.virtual_memory)?;
                try_cache!(partial_release);
                try_growth!(partial_release);
            }
            if !skipped.has(Rung::FullRelease) {
                self.make_room(state, None, request.virtual_memory)?;
                try_cache!(full_release);
                try_growth!(full_release);
            }
            // Another thread may have got a segment meanwhile, and blocks in pools for overflow have come back.
            try_cache!(full_release);
            if let Some(addr) = self.serve_from_overflow(state, request, context, attempt) {
                return Ok(Ok(addr));
            }
        }
        if capturing {
            attempt.tried.push("nothing that a graph capture forbids");
        }
        failure.map_or(Ok(Err((Refusal::Full, size))), Err)
    }
}
