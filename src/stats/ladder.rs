//! How requests were served that the cache could not serve at once.

/// Counts since the start, kept apart from the statistics that the stock allocator has. The first group
/// counts requests by the rung of the ladder that served them, in the order in which rungs are tried; the
/// second counts pages of virtual segments by where they came from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ladder {
    /// Requests that no free block fitted.
    pub misses: u64,
    /// Served once completed events were looked at.
    pub completed_events: u64,
    /// Served after the client's free-memory callbacks.
    pub callbacks: u64,
    /// Served from a new segment or newly mapped pages.
    pub growth: u64,
    /// Served from a pool opted in for overflow.
    pub overflow_pools: u64,
    /// Served after oversize blocks went back to the driver.
    pub oversize: u64,
    /// Served after a wait for events of freed blocks.
    pub awaited_events: u64,
    /// Served after the device was synchronised and as much was given back as the request needs.
    pub partial_release: u64,
    /// Served after everything idle was given back.
    pub full_release: u64,
    /// Not served.
    pub out_of_memory: u64,
    /// Pages obtained from the driver.
    pub pages_new: u64,
    /// Pages obtained ahead of need, by a thread of its own.
    pub pages_prefetched: u64,
    /// Pages that backed nothing.
    pub pages_idle: u64,
    /// Pages unmapped under free blocks.
    pub pages_unmapped: u64,
    /// Pages taken from free blocks and left mapped there.
    pub pages_lent: u64,
    /// Pages taken back without a driver call.
    pub pages_revived: u64,
    /// Blocks handed out to another stream than their own.
    pub blocks_lent: u64,
    /// Blocks handed out where a plan for a program that repeats itself has them.
    pub blocks_planned: u64,
    /// Waits for the event that fences a page's last use.
    pub fence_waits: u64,
    /// Waits of a stream for another, on the device.
    pub stream_waits: u64,
}

impl Ladder {
    /// Pages that moved from one place to another so far.
    pub fn pages_moved(&self) -> u64 {
        self.pages_lent + self.pages_unmapped
    }

    /// Names and counts, in the order of the fields.
    pub fn entries(&self) -> [(&'static str, u64); 20] {
        [
            ("misses", self.misses),
            ("completed_events", self.completed_events),
            ("callbacks", self.callbacks),
            ("growth", self.growth),
            ("overflow_pools", self.overflow_pools),
            ("oversize", self.oversize),
            ("awaited_events", self.awaited_events),
            ("partial_release", self.partial_release),
            ("full_release", self.full_release),
            ("out_of_memory", self.out_of_memory),
            ("pages_new", self.pages_new),
            ("pages_prefetched", self.pages_prefetched),
            ("pages_idle", self.pages_idle),
            ("pages_unmapped", self.pages_unmapped),
            ("pages_lent", self.pages_lent),
            ("pages_revived", self.pages_revived),
            ("blocks_lent", self.blocks_lent),
            ("blocks_planned", self.blocks_planned),
            ("fence_waits", self.fence_waits),
            ("stream_waits", self.stream_waits),
        ]
    }
}
