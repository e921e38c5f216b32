//! Trace entries, the last so many of them.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Context, caller};
use crate::ids::{BlockId, MempoolId, SegmentId, StreamKey};
use crate::mix::BuildMix;

/// What an entry says. The order is the stock allocator's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A block was handed out.
    Alloc,
    /// The client gave it back.
    FreeRequested,
    /// It became reusable.
    FreeCompleted,
    /// A segment was obtained.
    SegmentAlloc,
    /// A segment was returned.
    SegmentFree,
    /// Part of a virtual segment was mapped.
    SegmentMap,
    /// Part of a virtual segment was unmapped.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// Memory ran out; `addr` holds the free bytes of the device.
    OutOfMemory,
}

/// How much context to keep. Each level includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordContext {
    /// None.
    Never,
    /// For live blocks.
    State,
    /// Also for allocations in the trace.
    Alloc,
    /// Also for frees.
    All,
}

/// One thing that happened.
#[derive(Debug, Clone)]
pub struct TraceEntry {
    /// What.
    pub action: Action,
    /// Where; free bytes for [`Action::OutOfMemory`].
    pub addr: usize,
    /// How many bytes.
    pub size: usize,
    /// The block's stream.
    pub stream: StreamKey,
    /// The block's pool.
    pub pool: MempoolId,
    /// The client's stack, where recorded.
    pub context: Option<Arc<Context>>,
}

/// The recorder of one device. Contexts that are dropped go to a graveyard which the caller empties
/// after it has released the lock.
#[derive(Debug)]
pub struct History {
    /// Whether anything is to be recorded: the one thing the hot path asks.
    pub recording: bool,
    /// The same, or contexts are left over from a time when something was.
    pub active: bool,
    enabled: bool,
    trackers: bool,
    watched: bool,
    record: RecordContext,
    capacity: usize,
    ring: Vec<TraceEntry>,
    next: usize,
    /// Entries for the trackers, not yet delivered.
    undelivered: Vec<TraceEntry>,
    /// Contexts of active blocks.
    pub blocks: HashMap<BlockId, Arc<Context>, BuildMix>,
    /// Contexts of segments.
    pub segments: HashMap<SegmentId, Arc<Context>, BuildMix>,
    graveyard: Vec<Arc<Context>>,
}

impl Default for History {
    fn default() -> Self {
        Self {
            recording: false,
            active: false,
            enabled: false,
            trackers: false,
            watched: false,
            record: RecordContext::Never,
            capacity: 1,
            ring: Vec::new(),
            next: 0,
            undelivered: Vec::new(),
            blocks: HashMap::default(),
            segments: HashMap::default(),
            graveyard: Vec::new(),
        }
    }
}

impl History {
    /// The context of an entry about memory that a segment gives back or gets: of the call in which that happens, or
    /// else of the one that obtained the segment.
    pub fn returned(&self, segment: SegmentId) -> Option<Arc<Context>> {
        caller().or_else(|| self.segments.get(&segment).cloned())
    }

    /// Starts or stops recording; entries so far are dropped. `capacity` is at least 1.
    pub fn configure(&mut self, enabled: bool, capacity: usize, record: RecordContext) {
        self.enabled = enabled;
        self.record = if enabled {
            record
        } else {
            RecordContext::Never
        };
        self.capacity = capacity.max(1);
        self.next = 0;
        let entries = std::mem::take(&mut self.ring);
        self.graveyard
            .extend(entries.into_iter().filter_map(|entry| entry.context));
        // Contexts of blocks still active must leave with their blocks.
        self.recording = self.enabled || self.trackers || self.watched;
        self.active =
            self.enabled || self.trackers || !self.blocks.is_empty() || !self.segments.is_empty();
    }

    /// From now on entries are kept for trackers too.
    pub fn attach_trackers(&mut self) {
        self.trackers = true;
        (self.recording, self.active) = (true, true);
    }

    /// From now on nothing takes the hot path, as if something were recorded: the debug mode wants to see it.
    pub fn watch(&mut self) {
        (self.watched, self.recording) = (true, true);
    }

    /// Whether entries are recorded.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Appends an entry.
    pub fn push(&mut self, mut entry: TraceEntry) {
        if self.record < RecordContext::Alloc {
            self.graveyard.extend(entry.context.take());
        }
        if self.trackers {
            self.undelivered.push(entry.clone());
        }
        if !self.enabled {
            self.graveyard.extend(entry.context);
        } else if self.ring.len() < self.capacity {
            self.ring.push(entry);
        } else {
            let old = std::mem::replace(&mut self.ring[self.next], entry);
            self.graveyard.extend(old.context);
            self.next = (self.next + 1) % self.capacity;
        }
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &TraceEntry> {
        self.ring[self.next..].iter().chain(&self.ring[..self.next])
    }

    /// Takes the entries the trackers have not seen.
    pub fn take_undelivered(&mut self) -> Vec<TraceEntry> {
        std::mem::take(&mut self.undelivered)
    }

    /// Lets a context go.
    pub fn bury(&mut self, context: Option<Arc<Context>>) {
        self.graveyard.extend(context);
    }

    /// Whether contexts were let go that nobody took yet.
    pub fn has_graveyard(&self) -> bool {
        !self.graveyard.is_empty()
    }

    /// Takes the contexts let go so far: drop them after releasing the lock.
    pub fn take_graveyard(&mut self) -> Vec<Arc<Context>> {
        std::mem::take(&mut self.graveyard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(addr: usize) -> TraceEntry {
        TraceEntry {
            action: Action::Alloc,
            addr,
            size: 512,
            stream: StreamKey(0),
            pool: MempoolId::DEFAULT,
            context: None,
        }
    }

    #[test]
    fn the_ring_keeps_the_last_entries_in_order() {
        let mut history = History::default();
        history.configure(true, 3, RecordContext::All);
        for addr in 0..5 {
            history.push(entry(addr));
        }
        assert_eq!(
            history
                .entries()
                .map(|entry| entry.addr)
                .collect::<Vec<_>>(),
            [2, 3, 4]
        );
        history.configure(true, 3, RecordContext::All);
        assert_eq!(history.entries().count(), 0);
    }
}
