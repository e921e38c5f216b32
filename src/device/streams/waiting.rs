//! Freed blocks that other streams than their own may still use, and the events that tell.

use crate::driver::{EventHandle, StreamToken};
use crate::ids::BlockId;
use crate::stream::{PendingEvents, StreamUses, Traffic};

/// Bytes of blocks whose events are put off: up to this, or up to a part of what is active ([`Pace::share`]).
///
/// [`Pace::share`]: crate::stream::Pace::share
const DEFERRED_BYTES: usize = 16 << 20;
/// With `multi_stream_lazy_reclaim` an allocation that is served from cache asks only when more events than these are
/// outstanding (the stock allocator's number): without a bound they would become more and more.
const LAZY_EVENTS: usize = 512;

/// Uses of blocks by other streams, and the events after them.
#[derive(Default)]
pub(in crate::device) struct Events {
    pub uses: StreamUses,
    pub pending: PendingEvents,
    /// Freed blocks whose events could not be recorded, and the tick when that was: they wait for a device
    /// synchronisation that begins later.
    pub unfenced: Vec<(BlockId, u64)>,
    /// Freed blocks whose events are still to be recorded: those freed during a graph capture, once it has
    /// ended; others while the [`Traffic`] is heavy.
    pub deferred: Vec<BlockId>,
    /// Room for what [`DeviceAllocator::fence_deferred`] works on.
    ///
    /// [`DeviceAllocator::fence_deferred`]: crate::device::DeviceAllocator::fence_deferred
    pub to_fence: Vec<(StreamToken, BlockId)>,
    /// Bytes in blocks that were deferred.
    pub deferred_bytes: usize,
    /// How much there is to do with events.
    pub traffic: Traffic,
    /// Events not in use.
    pub idle: Vec<EventHandle>,
    /// Pending uses taken out of `pending` by a thread that waits for their events with the lock
    /// released, and uses whose events are being recorded.
    pub detached: usize,
    /// How often what was pending was given up: whoever waited meanwhile for an event of before has nothing to put back.
    pub resets: u64,
}

impl Events {
    /// Whether blocks wait for events, recorded or not.
    #[inline]
    pub fn are_waited_for(&self) -> bool {
        !self.pending.is_empty() || !self.deferred.is_empty()
    }

    /// Whether an allocation is to ask events, or to record them; `lazy`: `multi_stream_lazy_reclaim`.
    #[inline]
    pub fn are_outstanding(&self, lazy: bool) -> bool {
        let least = if lazy { LAZY_EVENTS } else { 0 };
        self.pending.len() + self.deferred.len() > least
    }

    /// Puts the event of a block of `size` bytes that was given back off.
    pub fn defer(&mut self, id: BlockId, size: usize) {
        self.deferred_bytes += size;
        self.deferred.push(id);
        self.traffic.note();
    }

    /// Whether the event of a block of `size` bytes may wait for those of others, while so many bytes are active.
    pub fn may_defer(&self, size: usize, active: usize) -> bool {
        let pace = self.traffic.pace();
        let most = (active / pace.share).max(DEFERRED_BYTES);
        self.traffic.is_heavy()
            && self.deferred.len() + 1 < pace.blocks
            && self.deferred_bytes + size <= most
    }
}
