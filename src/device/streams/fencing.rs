//! Events that tell how far streams have come: recorded ahead, asked, waited for. Never synchronises the
//! device.

use crate::device::DeviceAllocator;
use crate::device::state::{Request, State};
use crate::driver::{DriverResult, UNSUPPORTED_CODE};
use crate::ids::StreamKey;
use crate::sync::MutexGuard;

/// Frees between two fences that are recorded ahead.
pub(super) const FENCE_STEP: u64 = 32;

impl State {
    /// Whether a thread that does not capture may record events on a stream for a request. Another thread may capture
    /// any but the request's own, and the event would become part of the graph.
    pub(in crate::device) fn may_wait_for(&self, stream: StreamKey, request: &Request) -> bool {
        self.captures == 0 || stream == request.stream
    }
}

impl DeviceAllocator {
    /// Waits until everything freed on a stream up to `tick` is out of use.
    pub(in crate::device) fn wait_for(
        &self,
        state: &mut MutexGuard<'_, State>,
        stream: StreamKey,
        tick: u64,
    ) -> DriverResult<()> {
        let mut waiting = state.fences.take_until(stream, tick);
        if waiting.is_empty() {
            self.record_fence(state, stream)?;
            waiting = state.fences.take_until(stream, tick);
        }
        let Some(&(covers, last)) = waiting.last() else {
            // Another thread waits for it.
            return Ok(());
        };
        state.ladder.fence_waits += 1;
        let waited = MutexGuard::unlocked(state, || self.driver.event_synchronize(last));
        for (_, event) in waiting {
            state.events.idle.push(event);
        }
        waited?;
        state.fences.complete(stream, covers);
        Ok(())
    }

    /// Records an event on a stream, behind everything freed on it so far.
    pub(in crate::device) fn record_fence(
        &self,
        state: &mut MutexGuard<'_, State>,
        stream: StreamKey,
    ) -> DriverResult<()> {
        let tick = state.tick;
        let event = state.events.idle.pop();
        let recorded = MutexGuard::unlocked(state, || {
            let event = match event {
                Some(event) => event,
                None => self.driver.event_create(self.id)?,
            };
            match self.driver.event_record_fence(self.id, event, stream) {
                Ok(()) => Ok(event),
                Err(error) => {
                    let _ = self.driver.event_destroy(event);
                    Err(error)
                }
            }
        });
        match recorded {
            Ok(event) => state.fences.push(stream, tick, event),
            Err(error) => {
                if error.code == UNSUPPORTED_CODE {
                    state.fences.set_blind(stream);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Looks which fences have been passed.
    pub(in crate::device) fn poll_fences(&self, state: &mut State) {
        let heads: Vec<_> = state.fences.heads().collect();
        for (stream, mut event) in heads {
            while matches!(self.driver.event_query(event), Ok(true)) {
                if let Some(done) = state.fences.pop(stream) {
                    state.events.idle.push(done);
                }
                match state.fences.heads().find(|(of, _)| *of == stream) {
                    Some((_, next)) => event = next,
                    None => break,
                }
            }
        }
    }

    /// Records a fence on the request's stream, so that a later miss need not wait for what is free now.
    /// A failure does no harm: that miss will wait.
    pub(in crate::device) fn record_fences(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
    ) {
        let stream = request.stream;
        if !state.fences.is_blind(stream)
            && state.fences.has_room(stream)
            && state.fences.recorded(stream) + FENCE_STEP <= state.tick
        {
            let _ = self.record_fence(state, stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Settings;
    use crate::driver::StreamToken;
    use crate::driver::fake::FakeDriver;
    use crate::ids::DeviceId;

    #[test]
    fn no_fence_from_before_a_reset_is_waited_for() {
        let driver = Arc::new(FakeDriver::new(1 << 30));
        let device = DeviceAllocator::new(DeviceId(0), driver.clone(), Settings::default(), 32)
            .expect("device");
        let stream = StreamKey(0);
        let addr = device.allocate(700, stream).expect("fits");
        // Work that the reset ends: its events never complete.
        driver.submit(StreamToken {
            id: 0,
            device: 0,
            reserved: 0,
        });
        assert!(device.deallocate(addr));
        let mut state = device.state.lock();
        device.record_fence(&mut state, stream).expect("recorded");
        drop(state);
        device.drop_pending_events();
        let mut state = device.state.lock();
        let tick = state.tick;
        assert_eq!(state.fences.heads().count(), 0);
        assert!(state.fences.take_until(stream, tick).is_empty());
        // Nothing counts as completed: the reset may be another device's.
        assert!(state.fences.completed(stream) < tick);
        drop(state);
        device.check_consistency().expect("consistent");
    }
}
