//! How much memory a device may hold beside what is in use, before idle pages are reused instead of asking for more. Pure.

use crate::config::ExpandableSegments;
use crate::device::state::{Request, State};
use crate::stats::Lane;

/// By how much memory held may exceed what was ever needed at once before idle pages are reused instead
/// of asking for more: this part of it (2.8 %). With what small requests may have beyond ([`SMALL_SHARE`]) and what rounding
/// adds, 17 recorded programs, all but the sharded ones, stay within 3 % of what their tensors have. With 1/34 two of them did
/// not, for as many driver calls on average (`docs/experiments-memory.md`, *How much may be held*).
const SLACK: usize = 36;
/// The same for several streams (7 %): what they free in turns leaves holes of many sizes. No more than what others than the
/// list's own had at once, where the large blocks of all streams are in one list, or what moved although the device had
/// more, where blocks were used on several. Four recorded programs of several streams
/// make 33, 84, 0 and 155 driver calls once this much is held; with 3 % 3,451, 67, 223 and 4,022. It is a part of
/// what was allocated, since blocks that wait for another stream serve as slack.
const SHARED_SLACK: usize = 14;
/// The same where virtual segments were not asked for: programs that are content with what fixed segments hold
/// get by with fewer driver calls (an eighth more).
const UNASKED_SLACK: usize = 8;
/// Where virtual segments were not asked for, this part of what moved although the device had more may be held on top.
/// What moves at every step of a program costs more in the end than memory that nobody else asks for: streams that need
/// memory by turns come to have what each needs at its peak, as in the stock allocator, and nothing moves any more.
const CREDIT: usize = 2;
/// Once what is needed comes this close to all the memory there is (an eighth of what is needed), what would be left is
/// of no use to others: then all may be held, as in the stock allocator. On the serving trace with 1.03 to 1.08 times
/// what is live this takes 10 to 40 % fewer driver calls.
const NEAR: usize = 8;
/// Small requests may exceed the target by this part of what is needed, unless all pages are small: exchanging a large
/// page for a small one takes four calls, a new one two, and saves little.
const SMALL_SHARE: usize = 256;
/// The least such excess, bytes: in a small working set moving pages would cost more than it saves.
pub(in crate::device) const MIN_SLACK: usize = 256 << 20;

/// What is needed at a time, bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::device) struct Needed {
    pub active: usize,
    /// Less what waits for other streams.
    pub allocated: usize,
}

impl Needed {
    /// The most of each.
    pub fn max(self, other: Self) -> Self {
        Self {
            active: self.active.max(other.active),
            allocated: self.allocated.max(other.allocated),
        }
    }
}

/// Requests that lack memory, and what those needed that were served: what was asked for in vain is no reason to hold
/// more from now on.
#[derive(Debug, Default)]
pub(in crate::device) struct Climbing {
    /// How many are under way.
    requests: usize,
    /// One of them failed while others were under way.
    in_vain: bool,
    served: Needed,
}

impl State {
    /// A request lacks memory.
    pub(in crate::device) fn begin_climb(&mut self) {
        self.budget.climbing.requests += 1;
    }

    /// It was served, or failed.
    pub(in crate::device) fn end_climb(&mut self, served: bool) {
        let now = self.needs(0);
        let climbing = &mut self.budget.climbing;
        climbing.requests -= 1;
        if served {
            climbing.served = climbing.served.max(now);
        }
        climbing.in_vain |= !served;
        // Until the last one ends, nobody knows whose need it was that counts.
        if climbing.requests == 0 {
            if std::mem::take(&mut climbing.in_vain) {
                self.budget.most = climbing.served.max(now);
            }
            climbing.served = self.budget.most;
        }
    }

    /// Bytes that may be obtained from the driver before idle memory is to be reused.
    pub(in crate::device) fn room_to_grow(&self, request: &Request) -> usize {
        let needed = self.needed_with(request);
        let beyond = if request.small && !self.all_pages_are_small() {
            needed / SMALL_SHARE
        } else {
            0
        };
        let target = self.target(needed) + beyond;
        target.saturating_sub(self.reserved() + self.budget.growing)
    }

    /// Notes what is needed with a request that lacks memory.
    pub(in crate::device) fn note_needed(&mut self, request: &Request) {
        self.budget.most = self.budget.most.max(self.needs(request.size));
    }

    /// What is needed now, and `more` bytes.
    pub(super) fn needs(&self, more: usize) -> Needed {
        let blocks = &self.stats.blocks;
        Needed {
            active: blocks.active_bytes() as usize + more,
            allocated: blocks.current(Lane::AllocatedBytes) as usize + more,
        }
    }

    /// The most that was ever active at once, this request included.
    pub(in crate::device) fn needed_with(&self, request: &Request) -> usize {
        self.budget.most.active.max(self.active_with(request))
    }

    /// What is active with this request included.
    pub(in crate::device) fn active_with(&self, request: &Request) -> usize {
        self.stats.blocks.active_bytes() as usize + request.size
    }

    /// Bytes to be held at the most, where so many are needed, as long as the device has them.
    pub(in crate::device) fn target(&self, needed: usize) -> usize {
        let asked = self.settings.expandable_segments == ExpandableSegments::On;
        let slack = if !asked || self.is_near(needed) {
            needed / UNASKED_SLACK
        } else {
            let allocated = self.budget.most.allocated;
            let most = allocated + allocated / SHARED_SLACK;
            let wanted = self.wanted_by_turns();
            wanted.min(most.saturating_sub(needed)).max(needed / SLACK)
        };
        let credit = if asked { 0 } else { self.budget.moved / CREDIT };
        needed + slack.max(MIN_SLACK) + credit
    }

    /// What streams that take turns want on top, bytes.
    fn wanted_by_turns(&self) -> usize {
        let of_others = self.guests.shared.map_or(0, |_| self.guests.most);
        let moved = if self.uses_several_streams() {
            self.budget.moved
        } else {
            0
        };
        of_others.max(moved)
    }

    /// Whether so much comes close to all the memory there is.
    fn is_near(&self, needed: usize) -> bool {
        needed + needed / NEAR > self.most_there_is()
    }

    /// The memory of the device, or the process's share of it.
    pub(in crate::device) fn most_there_is(&self) -> usize {
        self.budget
            .limit
            .map_or(self.budget.total, |limit| limit.min(self.budget.total))
    }

    /// Whether half of all the memory there is will hardly be needed.
    pub(in crate::device) fn is_half_enough(&self, request: &Request) -> bool {
        !self.budget.device_full && self.needed_with(request) < self.most_there_is() / 2
    }

    /// Whether much more memory can be had than what is held.
    pub(in crate::device) fn is_ample(&self) -> bool {
        !self.budget.device_full && !self.is_near(self.reserved())
    }

    /// Whether more memory may be held than is needed, for the sake of host time: segments are virtual, and nobody asked
    /// for them.
    pub(in crate::device) fn may_keep(&self) -> bool {
        self.paging.virtual_memory
            && self.settings.expandable_segments == ExpandableSegments::Default
    }

    /// Whether a request takes memory away from elsewhere, as no more is to be obtained.
    pub(in crate::device) fn moves_memory(&self, request: &Request) -> bool {
        self.is_full(request) || self.room_to_grow(request) < request.size
    }

    /// Whether there is no more to be obtained.
    pub(in crate::device) fn is_full(&self, request: &Request) -> bool {
        self.budget.device_full || self.room_under_limit() < request.size
    }

    /// Bytes that may be obtained from the driver under the process's limit.
    pub(in crate::device) fn room_under_limit(&self) -> usize {
        self.budget
            .limit
            .map_or(usize::MAX, |limit| limit.saturating_sub(self.held()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Settings;
    use crate::device::DeviceAllocator;
    use crate::driver::StreamToken;
    use crate::driver::fake::FakeDriver;
    use crate::ids::{DeviceId, ListId, StreamKey};

    const GIB: usize = 1 << 30;

    #[test]
    fn streams_that_take_turns_may_hold_as_much_more_as_they_had_of_each_others() {
        let settings = Settings::parse("expandable_segments:True").expect("valid");
        let mut state = State::new(settings);
        state.budget.total = 64 * GIB;
        let beyond = |state: &State| state.target(28 * GIB) - 28 * GIB;
        let usual = beyond(&state);
        assert_eq!(usual, 28 * GIB / 36);
        state.guests.shared = Some(ListId(3));
        state.budget.most.allocated = 28 * GIB;
        for (most, expected) in [(0, usual), (GIB, GIB), (5 * GIB, 2 * GIB)] {
            state.guests.most = most;
            assert_eq!(beyond(&state), expected);
        }
        // A part of what is active waits for another stream.
        state.budget.most.allocated = 27 * GIB;
        assert_eq!(beyond(&state), 27 * GIB + 27 * GIB / 14 - 28 * GIB);
        state.budget.most.allocated = 20 * GIB;
        assert_eq!(beyond(&state), usual);
    }

    #[test]
    fn several_streams_may_hold_as_much_more_as_moved_for_them() {
        let settings = Settings::parse("expandable_segments:True").expect("valid");
        let mut state = State::new(settings);
        state.budget.total = 64 * GIB;
        state.budget.most.allocated = 28 * GIB;
        let usual = 28 * GIB / 36;
        let mut beyond_with = |streams: usize, moved: usize| {
            state.budget.moved = moved;
            state.use_on_streams(streams);
            state.target(28 * GIB) - 28 * GIB
        };
        assert_eq!(beyond_with(1, 5 * GIB), usual);
        for (moved, expected) in [(0, usual), (GIB, GIB), (5 * GIB, 2 * GIB)] {
            assert_eq!(beyond_with(2, moved), expected);
        }
    }

    #[test]
    fn what_waits_for_another_stream_is_needed_but_not_allocated() {
        let driver = Arc::new(FakeDriver::new(512 << 20));
        let settings = Settings::parse("expandable_segments:True").expect("valid");
        let device =
            DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device");
        let allocate = |size: usize| device.allocate(size - 4096, StreamKey(0)).expect("fits");
        let first = allocate(64 << 20);
        let other = StreamToken {
            id: 1,
            device: 0,
            reserved: 0,
        };
        assert!(device.record_stream(first, other));
        driver.submit(other);
        assert!(device.deallocate(first));
        allocate(128 << 20);
        let state = device.state.lock();
        let Needed { active, allocated } = state.budget.most;
        assert_eq!(active.next_multiple_of(1 << 20), 192 << 20);
        assert_eq!(allocated.next_multiple_of(1 << 20), 128 << 20);
    }
}
