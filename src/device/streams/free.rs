//! Freeing, and the stream uses that delay it.

use std::sync::Arc;

use crate::block::{BlockState, GUEST, NO_USES, Place};
use crate::device::DeviceAllocator;
use crate::device::state::{BlockHandle, State};
use crate::driver::StreamToken;
use crate::history::Context;
use crate::ids::BlockId;
use crate::sync::MutexGuard;

impl State {
    /// The live block at an address; blocks that are kept have entries in the map too.
    fn find_live(&self, addr: usize) -> Option<(Place, BlockId)> {
        let found = self.live.find(addr, &self.arena);
        found.filter(|(_, id)| self.arena[*id].state == BlockState::Live)
    }
}

impl DeviceAllocator {
    /// As [`Self::deallocate`], with the client's context.
    pub fn deallocate_with(&self, addr: usize, context: Option<Arc<Context>>) -> bool {
        let Some(mut guard) = self.state.lock_keeping_if_sound() else {
            return false;
        };
        let state = &mut *guard;
        let Some((place, id)) = state.find_live(addr) else {
            return false;
        };
        state.live.remove_at(place);
        self.free_used(guard, id, context);
        true
    }

    /// Gives back a block that has left the live map.
    #[inline(never)]
    fn free_used(
        &self,
        mut state: MutexGuard<'_, State>,
        id: BlockId,
        context: Option<Arc<Context>>,
    ) {
        let shared = state.guests.shared.is_some() && state.arena[id].flags & GUEST != 0;
        let guest = shared.then(|| state.stream_of(id));
        state.retire(id, context.as_ref());
        if state.arena[id].uses == NO_USES {
            state.complete_free(id, context.as_ref());
        } else {
            self.fence_or_defer(&mut state, id);
        }
        if let Some(stream) = guest {
            self.mark_progress(&mut state, stream, 1);
        }
        self.unlock(state);
    }

    #[cold]
    fn fence_or_defer(&self, state: &mut MutexGuard<'_, State>, id: BlockId) {
        if self.is_exiting() {
            state.take_uses(id);
            state.complete_free(id, None);
            return;
        }
        let waits = state.may_defer(state.arena[id].size);
        state.defer(id);
        // An event recorded into a capture can't be queried: record it when the capture is over.
        if !waits && !self.in_capture(state) {
            self.fence_deferred(state);
        }
    }

    /// Notes that the block at `addr` is used on `stream` too; false when it is not a live block of
    /// this device.
    pub fn record_stream(&self, addr: usize, stream: StreamToken) -> bool {
        let Some(mut state) = self.state.lock_keeping_if_sound() else {
            return false;
        };
        let Some((_, id)) = state.find_live(addr) else {
            return false;
        };
        let captured = self.in_capture(&state);
        let state = &mut *state;
        state.arena.marks.clear(id);
        state
            .events
            .uses
            .add(&mut state.arena[id], stream, captured);
        true
    }

    /// From now on frees with uses share events, whether there are many or few and whoever looks: for tests.
    #[doc(hidden)]
    pub fn assume_heavy_traffic(&self) {
        self.state.lock().events.traffic.stay_heavy();
    }

    /// Takes back a `record_stream`: the client knows that the use has ended. False when `addr` is not
    /// a live block of this device.
    pub fn erase_stream(&self, addr: usize, stream: StreamToken) -> bool {
        let Some(mut state) = self.state.lock_if_sound() else {
            return false;
        };
        let Some(id) = state.live.get(addr, &state.arena) else {
            return false;
        };
        let state = &mut *state;
        state.events.uses.remove(&mut state.arena[id], stream);
        true
    }

    /// As [`Self::erase_stream`] for a block that may already have been freed: takes its outstanding
    /// event on `stream` out, so that it returns without waiting for it. False for a stale handle.
    pub fn erase_stream_of(&self, handle: BlockHandle, stream: StreamToken) -> bool {
        let Some(mut state) = self.state.lock_if_sound() else {
            return false;
        };
        let Some(id) = state.resolve(handle) else {
            return false;
        };
        // The block's own stream may wait for that use on the device alone, and not before now: what was recorded on it earlier
        // does not tell that the use is over.
        state.tick += 1;
        if state.arena[id].state == BlockState::Live {
            let state = &mut *state;
            state.events.uses.remove(&mut state.arena[id], stream);
        } else if let Some(pending) = state.events.pending.take(stream, id) {
            state.event_done(pending);
        } else if let Some(at) = state.events.deferred.iter().position(|other| *other == id) {
            let state = &mut *state;
            state.events.uses.remove(&mut state.arena[id], stream);
            if state.arena[id].uses == NO_USES {
                state.events.deferred.remove(at);
                state.events.deferred_bytes -= state.arena[id].size;
                state.use_done(id);
            }
        }
        self.unlock(state);
        true
    }
}
