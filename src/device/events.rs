//! Events of freed blocks: asking, waiting, and returning blocks whose last use is over.

use parking_lot::MutexGuard;

use super::DeviceAllocator;
use super::state::State;
use crate::error::Result;
use crate::ids::BlockId;
use crate::stream::PendingUse;

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
            self.complete_free(id);
        }
    }
}

impl DeviceAllocator {
    /// Returns blocks whose events have completed to their lists, without waiting. A query that fails
    /// counts as not complete.
    pub(super) fn reap_events(&self, state: &mut State) {
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

    /// Waits for every outstanding event and returns the blocks. The device must have been synchronised
    /// since the unfenced blocks were freed, or they stay.
    pub(super) fn drain_events(
        &self,
        state: &mut MutexGuard<'_, State>,
        unfenced: Vec<BlockId>,
    ) -> Result<()> {
        for id in unfenced {
            if let Some(at) = state.unfenced.iter().position(|other| *other == id) {
                state.unfenced.swap_remove(at);
                state.use_done(id);
            }
        }
        let waiting = state.pending.drain();
        state.detached += waiting.len();
        let mut failure = None;
        for (stream, pending) in waiting {
            let waited = match failure {
                None => MutexGuard::unlocked(state, || {
                    self.driver.event_synchronize(pending.event)
                }),
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
        state.stats.num_sync_all_streams += 1;
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
    }
}
