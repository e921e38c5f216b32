//! Events of freed blocks: asking, waiting, and returning blocks whose last use is over.

use super::DeviceAllocator;
use super::state::State;
use crate::error::Result;
use crate::ids::{BlockId, PoolId};
use crate::stream::PendingUse;
use crate::sync::MutexGuard;

/// Completed events handled for one allocation at the most: bounds its latency. What is left is
/// handled by the next ones, or by a miss.
const REAP_LIMIT: usize = 64;

impl State {
    /// One event of the block has completed.
    pub(super) fn event_done(&mut self, done: PendingUse) {
        self.idle_events.push(done.event);
        self.use_done(done.block);
    }

    fn use_done(&mut self, id: BlockId) {
        self.arena[id].events -= 1;
        if self.arena[id].events == 0 {
            self.complete_free(id, None);
        }
    }

    fn pool_of(&self, id: BlockId) -> PoolId {
        self.lists[self.arena[id].list].pool
    }
}

impl DeviceAllocator {
    /// Returns blocks whose events have completed to their lists, without waiting. A query that fails
    /// counts as not complete.
    pub(super) fn reap_events(&self, state: &mut MutexGuard<'_, State>) {
        self.fence_deferred(state);
        let mut budget = REAP_LIMIT;
        for stream in 0..state.pending.streams() {
            while let Some(head) = state.pending.head(stream) {
                if budget == 0 {
                    return;
                }
                if !matches!(self.driver.event_query(head.event), Ok(true)) {
                    break;
                }
                state.pending.pop(stream);
                state.event_done(head);
                budget -= 1;
            }
        }
    }

    /// Records the events that a graph capture kept from being recorded. Uses within the capture need
    /// none: the graph orders them.
    pub(super) fn fence_deferred(&self, state: &mut MutexGuard<'_, State>) {
        for id in std::mem::take(&mut state.deferred) {
            let outside: Vec<_> = state
                .take_uses(id)
                .into_iter()
                .filter(|used| !used.captured)
                .collect();
            let inner = &mut **state;
            for used in outside {
                inner.uses.add(&mut inner.arena[id], used.stream, false);
            }
            state.arena[id].events = 0;
            if state.uses.of(&state.arena[id]).is_empty() {
                state.complete_free(id, None);
            } else {
                self.fence(state, id);
            }
        }
    }

    /// Waits for the outstanding events of `pool` (`None`: of all) and returns the blocks. `unfenced`
    /// are the blocks without an event that were freed before the device was last synchronised.
    pub(super) fn drain_events(
        &self,
        state: &mut MutexGuard<'_, State>,
        unfenced: Vec<BlockId>,
        pool: Option<PoolId>,
    ) -> Result<()> {
        for id in unfenced {
            if let Some(at) = state.unfenced.iter().position(|other| *other == id) {
                state.unfenced.swap_remove(at);
                state.use_done(id);
            }
        }
        let mut waiting = state.pending.drain();
        if let Some(pool) = pool {
            for (stream, pending) in std::mem::take(&mut waiting) {
                if state.pool_of(pending.block) == pool {
                    waiting.push((stream, pending));
                } else {
                    state.pending.push(stream, pending);
                }
            }
        }
        state.detached += waiting.len();
        let mut failure = None;
        for (stream, pending) in waiting {
            let waited = match failure {
                None => {
                    MutexGuard::unlocked(state, || self.driver.event_synchronize(pending.event))
                }
                Some(error) => Err(error),
            };
            state.detached -= 1;
            match waited {
                Ok(()) => state.event_done(pending),
                Err(error) => {
                    state.pending.push(stream, pending);
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
        for (_, pending) in state.pending.drain() {
            state.event_done(pending);
        }
        for id in std::mem::take(&mut state.unfenced) {
            state.use_done(id);
        }
        self.unlock(state);
    }
}
