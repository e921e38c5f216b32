//! Recording what happens.

use std::sync::Arc;

use super::DeviceAllocator;
use super::state::Request;
use crate::history::{Action, Context, RecordContext, TraceEntry};
use crate::ids::MempoolId;

impl DeviceAllocator {
    /// Starts or stops recording; what was recorded so far is dropped. Nothing where the device is poisoned: all devices are
    /// told at once.
    pub fn record_history(&self, enabled: bool, capacity: usize, record: RecordContext) {
        let Some(mut state) = self.state.lock_if_sound() else {
            return;
        };
        state.history.configure(enabled, capacity, record);
        let graveyard = state.history.take_graveyard();
        drop(state);
        drop(graveyard);
    }

    /// From now on every request comes by `allocate_in` and `deallocate_with`.
    pub(crate) fn leave_hot_path(&self) {
        self.state.lock().history.watch();
    }

    /// Whether history is being recorded.
    pub fn is_history_enabled(&self) -> bool {
        self.state.look().history.is_enabled()
    }

    /// From now on entries are kept for `take_undelivered_trace` too.
    pub fn attach_trace_trackers(&self) {
        if let Some(mut state) = self.state.lock_if_sound() {
            state.history.attach_trackers();
        }
    }

    /// The recorded entries, oldest first.
    pub fn trace(&self) -> Vec<TraceEntry> {
        self.state.look().history.entries().cloned().collect()
    }

    /// Takes the entries not yet seen by the trackers.
    pub fn take_undelivered_trace(&self) -> Vec<TraceEntry> {
        let state = self.state.lock_if_sound();
        state.map_or_else(Vec::new, |mut state| state.history.take_undelivered())
    }

    /// Appends the entry of a request that failed for want of memory.
    pub(super) fn trace_out_of_memory(
        &self,
        request: &Request,
        pool: MempoolId,
        device_free: usize,
        context: Option<Arc<Context>>,
    ) {
        let mut state = self.state.lock();
        if state.history.active {
            state.history.push(TraceEntry {
                action: Action::OutOfMemory,
                addr: device_free,
                size: request.size,
                stream: request.stream,
                pool,
                context,
            });
        }
        self.unlock(state);
    }
}
