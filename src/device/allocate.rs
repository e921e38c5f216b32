//! Allocation: the hot path, and the ladder a miss climbs.

use parking_lot::MutexGuard;

use super::DeviceAllocator;
use super::state::{Request, State};
use crate::driver::OUT_OF_MEMORY_CODE;
use crate::error::{AllocError, Result};
use crate::ids::StreamKey;

/// Why a segment could not be had.
enum Refusal {
    /// No room on the device or under the limit.
    Full,
    /// Policy forbids asking (`throw_on_npumalloc_oom`).
    Policy,
}

impl DeviceAllocator {
    /// A block of at least `bytes` (> 0) for use on `stream`. Returns its address.
    #[inline]
    pub fn allocate(&self, bytes: usize, stream: StreamKey) -> Result<usize> {
        let mut state = self.state.lock();
        if !state.pending.is_empty() && !state.settings.multi_stream_lazy_reclaim {
            self.reap_events(&mut state);
        }
        let request = state.request(bytes, self.pad, stream);
        if let Some(id) = state.find(&request) {
            return Ok(state.hand_out(id, &request));
        }
        self.allocate_slow(state, request)
    }

    /// Each rung is tried only when the ones before it failed.
    #[cold]
    fn allocate_slow(&self, mut state: MutexGuard<'_, State>, request: Request) -> Result<usize> {
        // Completed events.
        if !state.pending.is_empty() {
            self.reap_events(&mut state);
            if let Some(id) = state.find(&request) {
                return Ok(state.hand_out(id, &request));
            }
        }
        // The client's free-memory callbacks.
        if MutexGuard::unlocked(&mut state, || self.driver.run_free_callbacks(self.id))?
            && let Some(id) = state.find(&request)
        {
            return Ok(state.hand_out(id, &request));
        }
        // A new segment.
        let size = state.settings.allocation_size(request.size);
        if state.limit.is_some() && state.settings.garbage_collection_threshold > 0.0 {
            self.collect_garbage(&mut state)?;
        }
        match self.grow(&mut state, &request, size)? {
            Ok(addr) => return Ok(addr),
            Err(Refusal::Policy) => return Err(self.rejected(state, size)),
            Err(Refusal::Full) => {}
        }
        // Oversize blocks, just enough of them.
        if self.release_oversize(&mut state, &request)?
            && let Ok(addr) = self.grow(&mut state, &request, size)?
        {
            return Ok(addr);
        }
        // Idle segments, oldest first and no more than needed; everything when that was not enough.
        state.stats.num_alloc_retries += 1;
        for enough in [Some(size), None] {
            self.release_idle(&mut state, enough)?;
            // Reaping events on the way may have freed a block that fits.
            if let Some(id) = state.find(&request) {
                return Ok(state.hand_out(id, &request));
            }
            if let Ok(addr) = self.grow(&mut state, &request, size)? {
                return Ok(addr);
            }
        }
        Err(self.out_of_memory(state, size))
    }

    /// Asks the driver for a segment with the lock released, and serves the request from it.
    fn grow(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        size: usize,
    ) -> Result<std::result::Result<usize, Refusal>> {
        let promised = state.reserved() + state.growing + size;
        if state.limit.is_some_and(|limit| promised > limit) {
            return Ok(Err(Refusal::Full));
        }
        let policy_fraction = state
            .settings
            .throw_on_npumalloc_oom
            .then_some(state.settings.per_process_memory_fraction);
        let huge_1g = state.settings.page_size_1g && !request.small;
        state.growing += size;
        let answer = MutexGuard::unlocked(state, || {
            if let Some(fraction) = policy_fraction {
                let total = self.driver.memory_info(self.id)?.total;
                if promised as f64 > (fraction * total as f64).floor() {
                    return Ok(None);
                }
            }
            self.driver.malloc(self.id, size, huge_1g).map(Some)
        });
        state.growing -= size;
        match answer {
            Ok(Some(addr)) => {
                let id = state.add_segment(addr, size, request);
                Ok(Ok(state.hand_out(id, request)))
            }
            Ok(None) => Ok(Err(Refusal::Policy)),
            Err(error) if error.is_out_of_memory() => Ok(Err(Refusal::Full)),
            Err(error) => Err(error.into()),
        }
    }

    fn rejected(&self, mut state: MutexGuard<'_, State>, size: usize) -> AllocError {
        state.stats.num_oom_rejections += 1;
        AllocError::Rejected(Box::new(self.report(state, size, OUT_OF_MEMORY_CODE)))
    }

    fn out_of_memory(&self, mut state: MutexGuard<'_, State>, size: usize) -> AllocError {
        state.stats.num_ooms += 1;
        AllocError::OutOfMemory(Box::new(self.report(state, size, OUT_OF_MEMORY_CODE)))
    }
}
