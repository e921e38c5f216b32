//! New memory for a request, of either kind, and fixed segments.

use std::sync::Arc;

use crate::config::ExpandableSegments;
use crate::device::DeviceAllocator;
use crate::device::paging::Refusal;
use crate::device::state::{Request, State};
use crate::driver::DriverResult;
use crate::error::Result;
use crate::history::Context;
use crate::ids::PoolId;
use crate::sync::MutexGuard;

impl State {
    /// Whether pages are idle that are held without anybody having asked for virtual segments.
    fn has_unasked_pages(&self) -> bool {
        let unasked = self.settings.expandable_segments == ExpandableSegments::Default;
        unasked && (self.paging.pages.bytes() > 0 || !self.donors().is_empty())
    }

    /// Whether a pool's segments come from an allocator of its own.
    pub(in crate::device) fn is_external(&self, pool: PoolId) -> bool {
        self.pools.get(pool).is_some_and(|pool| pool.external)
    }
}

impl DeviceAllocator {
    /// Maps memory where new segments are virtual, otherwise asks for a fixed segment.
    pub(in crate::device) fn grow_any(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        size: usize,
        context: &Option<Arc<Context>>,
    ) -> Result<std::result::Result<usize, Refusal>> {
        if self.is_rejected(state, size)? {
            // Where the driver chose virtual segments and settings at run time ended them, their idle pages go back first.
            let left = !request.virtual_memory && state.has_unasked_pages();
            return Ok(Err(if left { Refusal::Full } else { Refusal::Policy }));
        }
        if request.virtual_memory && !state.is_external(request.pool) {
            self.grow_virtual(state, request, context)
        } else {
            state.look_at_blocks();
            let ample = state.ample_segment(request, size);
            if ample > size
                && !self.is_rejected(state, ample)?
                && let Ok(addr) = self.grow(state, request, ample, context)?
            {
                return Ok(Ok(addr));
            }
            self.grow(state, request, size, context)
        }
    }

    /// Whether policy (`throw_on_npumalloc_oom`) forbids to ask for `size` bytes. Above a limit the request finds its
    /// memory full, as in the stock allocator: what is cached may go back first.
    fn is_rejected(&self, state: &mut MutexGuard<'_, State>, size: usize) -> DriverResult<bool> {
        if !state.settings.throw_on_npumalloc_oom {
            return Ok(false);
        }
        if state.room_under_limit() < size {
            return Ok(false);
        }
        let memory = MutexGuard::unlocked(state, || self.driver.memory_info(self.id))?;
        let share = state.settings.per_process_memory_fraction;
        let promised = state.held().saturating_add(size);
        Ok(promised as f64 > (share * memory.total as f64).floor())
    }

    /// Asks the driver for a segment with the lock released, and serves the request from it.
    fn grow(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        size: usize,
        context: &Option<Arc<Context>>,
    ) -> Result<std::result::Result<usize, Refusal>> {
        let promised = state.held().saturating_add(size);
        if state.budget.limit.is_some_and(|limit| promised > limit) {
            return Ok(Err(Refusal::Full));
        }
        let huge_1g = state.settings.page_size_1g && !request.small;
        let external = state
            .pools
            .get(request.pool)
            .filter(|pool| pool.external)
            .map(|p| p.id);
        state.budget.growing += size;
        state.pools.hold(request.pool);
        let answer = MutexGuard::unlocked(state, || match external {
            Some(pool) => self.driver.pool_malloc(self.id, pool, size),
            None => self.driver.malloc(self.id, size, huge_1g),
        });
        state.budget.growing -= size;
        state.pools.unhold(request.pool);
        match answer {
            Ok(addr) => {
                let id = state.add_segment(addr, size, request, context.as_ref());
                Ok(Ok(state.hand_out(id, request, context.clone())))
            }
            Err(error) if error.is_out_of_memory() => {
                state.budget.device_full = true;
                Ok(Err(Refusal::Full))
            }
            Err(error) => Err(error.into()),
        }
    }
}
