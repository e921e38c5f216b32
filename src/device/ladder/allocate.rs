//! Allocation: the hot path, and what a request that the cache does not serve ends in.

use std::sync::Arc;

use super::climb::Attempt;
use crate::device::DeviceAllocator;
use crate::device::paging::Refusal;
use crate::device::state::{Request, State};
use crate::driver::OUT_OF_MEMORY_CODE;
use crate::error::{AllocError, Result};
use crate::history::{Caller, Context};
use crate::ids::{MempoolId, PoolId, StreamKey};
use crate::size::MOST_BYTES;
use crate::sync::MutexGuard;

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
        state.sleep.refuse(pool, self.id)?;
        let mut request = state.request(bytes, self.pad, stream, pool);
        if state.planning.is_on()
            && let Some(addr) =
                self.serve_planned(&mut state, &mut request, &context, &mut caller)?
        {
            self.unlock(state);
            return Ok(addr);
        }
        let whole = state.cache.quick.size_of_block(request.size);
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
            let kept = !state.cache.quick.is_empty();
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
        if state.paging.engine_open {
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
        if state.events_outstanding() && !state.events.traffic.pass() && !self.in_capture(state) {
            // Once memory was short, blocks are not kept from returning for the sake of fewer events.
            let short = state.budget.device_full || state.budget.failed_growths > 0;
            if short || state.events.traffic.fences() {
                self.fence_deferred(state);
            }
            self.reap_some(state);
            let ample = !short && state.may_keep() && state.is_ample();
            state.events.traffic.asked(ample);
        }
    }

    /// Serves a request that no free block fits: see [`climb`](super::climb).
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
}
