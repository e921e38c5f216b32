//! Streams that wait for others on the device, so that memory which one has freed serves another at once. Nobody waits on
//! the host, and a wait costs about what recording an event does.

use std::sync::Arc;

use super::fencing::FENCE_STEP;
use crate::device::DeviceAllocator;
use crate::device::state::{Request, State};
use crate::driver::UNSUPPORTED_CODE;
use crate::history::Context;
use crate::ids::{BlockId, StreamKey};
use crate::page::LastUse;
use crate::sync::MutexGuard;

/// Waits for one request at the most, before memory moves for it.
const MOST_WAITS: usize = 64;

impl DeviceAllocator {
    /// From now on the large blocks of all streams come into one list as soon as two have some: for tests.
    #[doc(hidden)]
    pub fn share_eagerly(&self) {
        self.state.lock().guests.share_eagerly = true;
    }

    /// Makes work submitted to a stream from now on wait for a last use. False where that can't be: streams that a graph
    /// may capture, those that the driver doesn't know, and where it fails, which does no harm: memory moves then.
    pub(in crate::device) fn order(
        &self,
        state: &mut MutexGuard<'_, State>,
        waiter: StreamKey,
        used: LastUse,
    ) -> bool {
        if state.fences.is_over_for(waiter, used) {
            return true;
        }
        // Asked twice: a capture may begin while the event is recorded, and the wait would be the graph's.
        let none_captured = |state: &State| state.captures == 0;
        let blind = state.fences.is_blind(used.stream) || state.fences.is_blind(waiter);
        if !none_captured(state) || blind {
            return false;
        }
        let mut covering = state.fences.take_covering(used);
        if covering.is_none() && self.record_fence(state, used.stream).is_ok() {
            covering = state.fences.take_covering(used);
        }
        // Without one another thread waits for it.
        let Some((covers, event)) = covering else {
            return false;
        };
        if !none_captured(state) {
            state.fences.put_back(used.stream, covers, event);
            return false;
        }
        let resets = state.events.resets;
        let waits = MutexGuard::unlocked(state, || self.driver.stream_wait(self.id, waiter, event));
        if state.events.resets == resets {
            state.fences.put_back(used.stream, covers, event);
        } else {
            state.events.idle.push(event);
        }
        match waits {
            Ok(()) => {
                state.ladder.stream_waits += 1;
                let tick = covers;
                state.fences.order(waiter, LastUse { tick, ..used });
                true
            }
            Err(error) => {
                if error.code == UNSUPPORTED_CODE {
                    state.fences.set_blind(waiter);
                }
                false
            }
        }
    }

    /// Puts the large blocks of all streams into one list, where that saves moving memory. False where nothing changed.
    pub(in crate::device) fn share_blocks(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
    ) -> bool {
        if !state.should_share(request) || !self.driver.orders_streams() {
            return false;
        }
        let Some((home, others)) = state.lists_to_share() else {
            return false;
        };
        let waiter = state.lists[home].stream;
        for &other in &others {
            let (stream, tick) = (state.lists[other].stream, state.tick);
            if !self.order(state, waiter, LastUse { stream, tick }) {
                return false;
            }
        }
        // The lock was released.
        let still =
            state.should_share(request) && state.lists_to_share() == Some((home, others.clone()));
        still && state.share_lists(home, &others)
    }

    /// Serves a request from the blocks of all streams where memory would have to move otherwise: streams wait for each
    /// other instead.
    pub(in crate::device) fn serve_shared(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        context: &Option<Arc<Context>>,
    ) -> Option<usize> {
        let served = self.order_and_serve(state, request, context);
        if request.guest {
            // So that what guests need next is not waited for together with all that comes until then.
            let home = state.lists[request.list].stream;
            self.mark_progress(state, home, FENCE_STEP);
        }
        served
    }

    fn order_and_serve(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        context: &Option<Arc<Context>>,
    ) -> Option<usize> {
        let home = state.lists[request.list].stream;
        self.poll_fences(state);
        state.return_guests();
        let moves = state.guests.share_eagerly || state.moves_memory(request);
        if moves {
            // Before a hole is cut that is larger than need be.
            self.order_home(state);
        }
        for _ in 0..MOST_WAITS {
            if state.sleep.has(request.pool) {
                return None;
            }
            if let Some(id) = state.find(request) {
                return Some(state.hand_out(id, request, context.clone()));
            }
            if !moves {
                break;
            }
            let Some((waiter, used)) = state.wait_for_request(request) else {
                break;
            };
            if !self.order(state, waiter, used) {
                break;
            }
            if waiter == home {
                state.return_guests();
            }
        }
        None
    }

    /// Hands a free block to a guest, which waits for its last use; another one if that is gone by then.
    pub(in crate::device) fn serve_guest(
        &self,
        state: &mut MutexGuard<'_, State>,
        id: BlockId,
        request: &Request,
        context: &Option<Arc<Context>>,
    ) -> Option<usize> {
        let (addr, used) = (state.arena[id].addr, state.last_use(id));
        let ordered = self.order(state, request.stream, used);
        if ordered && !state.sleep.has(request.pool) && state.is_still(id, addr, request) {
            return Some(state.hand_out(id, request, context.clone()));
        }
        self.serve_shared(state, request, context)
    }

    /// The home waits for what others have freed, so that it can be gathered. False where there is nothing of the kind.
    pub(in crate::device) fn order_home(&self, state: &mut MutexGuard<'_, State>) -> bool {
        let Some(list) = state.guests.shared else {
            return false;
        };
        let home = state.lists[list].stream;
        let mut ordered = false;
        for _ in 0..MOST_WAITS {
            let returning = state.guests.returning.iter();
            let mine = returning.filter(|(id, _)| state.arena[*id].list == list);
            let Some(used) = mine.map(|(_, used)| used).min_by_key(|used| used.tick) else {
                break;
            };
            if !self.order(state, home, used) {
                break;
            }
            state.return_guests();
            ordered = true;
        }
        ordered
    }

    /// Records an event behind what streams have freed, so that others need not wait for more than that.
    pub(super) fn mark_progress(
        &self,
        state: &mut MutexGuard<'_, State>,
        stream: StreamKey,
        step: u64,
    ) {
        let may = !self.is_exiting()
            && state.captures == 0
            && !state.fences.is_blind(stream)
            && state.fences.has_room(stream)
            && state.fences.recorded(stream) + step <= state.tick;
        if may {
            // A failure does no harm: who needs it records one.
            let _ = self.record_fence(state, stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::driver::StreamToken;
    use crate::driver::fake::FakeDriver;
    use crate::ids::DeviceId;

    const MIB: usize = 1 << 20;
    const HOME: StreamKey = StreamKey(1);
    const OTHER: StreamKey = StreamKey(2);

    fn device(capacity: usize) -> (Arc<FakeDriver>, Arc<DeviceAllocator>) {
        let driver = Arc::new(FakeDriver::new(capacity));
        let settings = Settings::parse("expandable_segments:True").expect("valid");
        let device = DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32);
        (driver, Arc::new(device.expect("device")))
    }

    /// A stream, as the driver names it.
    fn token(stream: StreamKey) -> StreamToken {
        StreamToken {
            id: stream.0 as i64,
            device: 0,
            reserved: 0,
        }
    }

    /// Another thread records an event on the home just before that is made to wait.
    fn record_before_the_wait(driver: &FakeDriver, device: &Arc<DeviceAllocator>) {
        let thread = device.clone();
        driver.meanwhile("stream_wait", move || {
            let mut state = thread.state.lock();
            thread.record_fence(&mut state, HOME).expect("recorded");
        });
    }

    #[test]
    fn an_event_from_before_the_wait_tells_nothing_of_what_is_waited_for() {
        let (driver, device) = device(1 << 30);
        let allocate = |size: usize, stream| device.allocate(size * MIB - 4096, stream);
        allocate(128, HOME).expect("fits");
        let freed = allocate(64, OTHER).expect("fits");
        driver.submit(token(OTHER));
        device.share_eagerly();
        assert!(device.deallocate(freed));
        record_before_the_wait(&driver, &device);
        // A part of it.
        assert_eq!(allocate(8, HOME).expect("fits"), freed);
        let mut state = device.state.lock();
        assert!(state.guests.shared.is_some());
        device.poll_fences(&mut state);
        let list = state.guests.shared.map(|list| &state.lists[list]);
        let mut free = list
            .into_iter()
            .flat_map(|list| list.free.iter(&state.arena));
        let rest = freed + 8 * MIB - 4096 + 512;
        let block = free.find(|&id| state.arena[id].addr.abs_diff(rest) < MIB);
        let used = state.last_use(block.expect("free for the home"));
        assert!(!state.fences.passed(used));
        assert!(state.fences.is_over_for(HOME, used));
    }

    #[test]
    fn an_event_from_before_the_wait_tells_nothing_of_what_a_guest_freed() {
        let (driver, device) = device(1 << 30);
        let allocate = |size: usize, stream| {
            let addr = device.allocate(size * MIB - 4096, stream);
            addr.expect("fits")
        };
        allocate(128, HOME);
        let freed = allocate(64, OTHER);
        device.share_eagerly();
        assert!(device.deallocate(freed));
        // The lists are joined for it.
        allocate(8, HOME);
        let lent = allocate(32, OTHER);
        assert!(device.state.lock().guests.shared.is_some());
        // All that waited is over, but not the guest's work from now on.
        driver.finish(token(HOME));
        driver.finish(token(OTHER));
        driver.submit(token(OTHER));
        assert!(device.deallocate(lent));
        record_before_the_wait(&driver, &device);
        // Larger than what else is free there.
        allocate(40, HOME);
        let mut state = device.state.lock();
        device.poll_fences(&mut state);
        let lists = state.lists.iter();
        let free = lists.flat_map(|(_, list)| list.free.iter(&state.arena));
        let there = freed..freed + 64 * MIB;
        let left: Vec<LastUse> = free
            .filter(|&id| there.contains(&state.arena[id].addr))
            .map(|id| state.last_use(id))
            .collect();
        assert_eq!(left.len(), 1, "what is left, free for the home");
        assert!(!state.fences.passed(left[0]));
        assert!(state.fences.is_over_for(HOME, left[0]));
    }

    #[test]
    fn a_range_asked_for_before_the_lists_were_joined_is_the_shared_lists() {
        let (driver, device) = device(1 << 30);
        let allocate = |size: usize, stream| device.allocate(size * MIB - 4096, stream);
        allocate(128, HOME).expect("fits");
        let freed = allocate(64, OTHER).expect("fits");
        assert!(device.deallocate(freed));
        let thread = device.clone();
        driver.meanwhile("reserve_address", move || {
            thread.share_eagerly();
            let served = thread.allocate(8 * MIB - 4096, HOME);
            assert_eq!(served.expect("what the other has freed"), freed);
        });
        allocate(100, StreamKey(3)).expect("fits");
        assert!(device.state.lock().guests.shared.is_some());
        device.check_consistency().expect("consistent");
    }

    #[test]
    fn mappings_left_behind_count_as_used_until_the_lists_are_joined() {
        let (_, device) = device(512 * MIB);
        let allocate = |size: usize, stream| device.allocate(size * MIB - 4096, stream);
        // Two holes, neither of which is large enough.
        let blocks = [32; 5].map(|size| allocate(size, OTHER).expect("fits"));
        allocate(192, HOME).expect("fits");
        device.set_memory_fraction(352.0 / 512.0).expect("valid");
        assert!(device.deallocate(blocks[1]) && device.deallocate(blocks[3]));
        allocate(48, OTHER).expect("their pages");
        let left = |state: &State| -> Vec<u64> {
            let pages = state.segments.iter().filter_map(|(_, s)| s.pages.as_ref());
            pages
                .flat_map(|p| p.stale_pages())
                .map(|(_, stale)| stale.tick)
                .collect()
        };
        let before = left(&device.state.lock());
        assert!(!before.is_empty());
        device.share_eagerly();
        allocate(300, HOME).expect_err("there is no more");
        let state = device.state.lock();
        assert!(state.guests.shared.is_some());
        assert!(
            left(&state)
                .iter()
                .all(|&tick| before.iter().all(|&old| old < tick))
        );
    }
}
