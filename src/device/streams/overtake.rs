//! Blocks that wait for events, handed on before these have completed: the stream that gets them waits on the device.

use crate::device::DeviceAllocator;
use crate::device::state::State;
use crate::driver::{EventHandle, StreamToken, UNSUPPORTED_CODE};
use crate::ids::{BlockId, StreamKey};
use crate::stream::PendingUse;
use crate::sync::MutexGuard;

impl DeviceAllocator {
    /// The stream that a block which waits for events is free for then waits for these on the device: for that stream the
    /// block is free at once. False where that can't be, or there is no such event.
    pub(in crate::device) fn order_pending(
        &self,
        state: &mut MutexGuard<'_, State>,
        id: BlockId,
    ) -> bool {
        let waiter = state.stream_of(id);
        if state.captures > 0 || state.fences.is_blind(waiter) || !self.driver.orders_streams() {
            return false;
        }
        let of_block = state.events.pending.iter().find(|(_, it)| it.block == id);
        let Some((stream, _)) = of_block.filter(|(_, it)| it.for_streams) else {
            return false;
        };
        let taken = state.events.pending.take_through(stream, id);
        let Some(event) = taken.last().map(|last| last.event) else {
            return false;
        };
        state.events.detached += taken.len();
        let resets = state.events.resets;
        let waits = MutexGuard::unlocked(state, || self.driver.stream_wait(self.id, waiter, event));
        state.events.detached -= taken.len();
        if state.events.resets != resets {
            taken.into_iter().for_each(|it| state.event_done(it));
            return true;
        }
        if let Err(error) = waits {
            if error.code == UNSUPPORTED_CODE {
                state.fences.set_blind(waiter);
            }
            state.events.pending.put_back(stream, taken);
            return false;
        }
        state.ladder.stream_waits += 1;
        state.end_for(waiter, stream, event, taken);
        true
    }
}

impl State {
    /// A stream waits for an event, of which the blocks were taken out together with those before: those that are free for
    /// that stream wait for it no more, the others are put back.
    fn end_for(
        &mut self,
        waiter: StreamKey,
        stream: StreamToken,
        event: EventHandle,
        taken: Vec<PendingUse>,
    ) {
        let ends = |it: &PendingUse| it.event == event && self.stream_of(it.block) == waiter;
        let (mut ended, mut left): (Vec<_>, Vec<_>) = taken.into_iter().partition(ends);
        if let Some(last) = left.iter_mut().rfind(|it| it.event == event) {
            last.last = true;
            ended.iter_mut().for_each(|it| it.last = false);
        }
        self.events.pending.put_back(stream, left);
        // That stream's events that were recorded before it waited tell nothing of the blocks.
        self.tick += 1;
        ended.into_iter().for_each(|it| self.event_done(it));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::block::BlockState;
    use crate::config::Settings;
    use crate::driver::fake::FakeDriver;
    use crate::ids::DeviceId;

    const MIB: usize = 1 << 20;
    const OTHER: StreamToken = StreamToken {
        id: 7,
        device: 0,
        reserved: 0,
    };

    /// Two blocks of different streams that wait for the same event of a third.
    fn two_wait(for_streams: bool) -> (Arc<FakeDriver>, DeviceAllocator, [BlockId; 2]) {
        let driver = Arc::new(FakeDriver::new(1 << 30));
        let settings = Settings::parse("expandable_segments:True").expect("valid");
        let device = DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32);
        let device = device.expect("device");
        device.assume_heavy_traffic();
        driver.submit(OTHER);
        let addrs = [1, 2].map(|stream| {
            let addr = device.allocate(2 * MIB, StreamKey(stream)).expect("fits");
            assert!(device.record_stream(addr, OTHER));
            addr
        });
        let state = device.state.lock();
        let blocks = addrs.map(|addr| state.live.get(addr, &state.arena).expect("live"));
        drop(state);
        if for_streams {
            device.plan_eagerly();
        }
        assert!(addrs.iter().all(|&addr| device.deallocate(addr)));
        let mut state = device.state.lock();
        device.reap_events(&mut state);
        let events: Vec<_> = state
            .events
            .pending
            .iter()
            .map(|(_, it)| it.event)
            .collect();
        assert_eq!(events, [events[0]; 2], "they share it");
        drop(state);
        (driver, device, blocks)
    }

    #[test]
    fn only_what_is_free_for_the_stream_that_waits_is_handed_on() {
        for at in [0, 1] {
            let (driver, device, blocks) = two_wait(true);
            let mut state = device.state.lock();
            assert!(device.order_pending(&mut state, blocks[at]));
            assert_eq!(driver.calls("stream_wait"), 1);
            let left: Vec<_> = state
                .events
                .pending
                .iter()
                .map(|(_, it)| (it.block, it.last))
                .collect();
            assert_eq!(left, [(blocks[1 - at], true)]);
            assert_eq!(state.arena[blocks[1 - at]].state, BlockState::Pending);
            drop(state);
            device.check_consistency().expect("consistent");
            driver.finish(OTHER);
            let mut state = device.state.lock();
            device.reap_events(&mut state);
            assert_eq!(
                (state.events.pending.len(), state.events.idle.len()),
                (0, 1)
            );
        }
    }

    #[test]
    fn an_event_is_given_back_once_nobody_waits_for_it() {
        let (_, device, blocks) = two_wait(true);
        let mut state = device.state.lock();
        for (id, idle) in blocks.into_iter().zip([0, 1]) {
            assert!(device.order_pending(&mut state, id));
            assert_eq!(state.events.idle.len(), idle);
        }
        assert!(state.events.pending.is_empty());
    }

    #[test]
    fn streams_wait_for_no_event_that_is_none_of_theirs() {
        let (driver, device, blocks) = two_wait(false);
        let mut state = device.state.lock();
        assert!(!device.order_pending(&mut state, blocks[0]));
        assert_eq!(driver.calls("stream_wait"), 0);
        assert_eq!(state.events.pending.len(), 2);
    }

    #[test]
    fn an_event_from_before_the_wait_tells_nothing_of_the_block() {
        let (driver, device, blocks) = two_wait(true);
        let mut state = device.state.lock();
        let home = StreamKey(1);
        device.record_fence(&mut state, home).expect("recorded");
        assert!(device.order_pending(&mut state, blocks[0]));
        device.poll_fences(&mut state);
        let used = state.last_use(blocks[0]);
        assert_eq!(used.stream, home);
        assert!(!state.fences.passed(used), "the other stream uses it still");
        device.record_fence(&mut state, home).expect("recorded");
        driver.finish(OTHER);
        driver.finish(StreamToken { id: 1, ..OTHER });
        device.poll_fences(&mut state);
        assert!(state.fences.passed(used));
    }

    #[test]
    fn a_failed_wait_changes_nothing() {
        let (driver, device, blocks) = two_wait(true);
        let mut state = device.state.lock();
        let before: Vec<_> = state.events.pending.iter().collect();
        driver.fail_call(0, 500_000);
        assert!(!device.order_pending(&mut state, blocks[0]));
        assert_eq!(state.events.pending.iter().collect::<Vec<_>>(), before);
        assert!(!state.fences.is_blind(StreamKey(1)));
        driver.refuse_waits();
        assert!(!device.order_pending(&mut state, blocks[0]));
        drop(state);
        device.check_consistency().expect("consistent");
    }

    #[test]
    fn nothing_is_waited_for_in_vain() {
        let (_, device, blocks) = two_wait(true);
        let mut state = device.state.lock();
        assert!(device.order_pending(&mut state, blocks[0]));
        assert!(!device.order_pending(&mut state, blocks[0]), "it is free");
        state.captures = 1;
        assert!(
            !device.order_pending(&mut state, blocks[1]),
            "it would be the graph's"
        );
        state.captures = 0;
    }
}
