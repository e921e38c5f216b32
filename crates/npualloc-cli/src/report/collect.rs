//! Watches a replay: every block, from when to when, and the memory held.

use std::collections::HashMap;

use npualloc::device::{BlockView, DeviceAllocator};
use npualloc::error::OomReport;
use npualloc::history::Action;
use npualloc_replay::pools;
use npualloc_replay::replay::Observer;
use npualloc_replay::trace::{Event, Trace};

use super::ranges::Ranges;

/// A block's life. Sizes in bytes; moments are numbers of events, `None` = not until the end.
#[derive(Debug, Clone)]
pub struct Block {
    /// Where.
    pub addr: u64,
    /// Bytes after rounding.
    pub size: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// The stream it was allocated on.
    pub stream: u32,
    /// When.
    pub allocated: u32,
    /// When it was given back.
    pub freed: Option<u32>,
    /// When it became reusable: later than `freed` if another stream used it.
    pub reusable: Option<u32>,
    /// Its number among the trace's allocations.
    pub ordinal: u32,
}

/// The moment memory ran out.
#[derive(Debug, Clone)]
pub struct OutOfMemory {
    /// The event.
    pub at: u32,
    /// Bytes asked for.
    pub requested: u64,
    /// On which stream.
    pub stream: u32,
    /// From which pool, as in a range.
    pub pool: u16,
    /// The allocator's message.
    pub message: String,
}

/// Everything a report needs of a replay.
#[derive(Debug, Default)]
pub struct Collector {
    /// In the order of their allocation.
    pub blocks: Vec<Block>,
    /// The memory that held them.
    pub ranges: Ranges,
    /// If it happened.
    pub out_of_memory: Option<OutOfMemory>,
    /// Streams and pools of the trace's allocations, in order.
    sources: Vec<(u32, u16)>,
    allocations: u32,
    /// Blocks in use by address.
    active: HashMap<usize, usize>,
}

impl Collector {
    /// For a trace.
    pub fn new(trace: &Trace) -> Self {
        let sources = trace.events.iter().filter_map(|event| match event {
            Event::Alloc { stream, pool, .. } => Some((*stream, *pool)),
            _ => None,
        });
        Self {
            sources: sources.collect(),
            ranges: Ranges::new(pools::ids(&trace.pools).zip(1..).collect()),
            ..Self::default()
        }
    }

    /// What an event did besides allocating `block`.
    fn take_entries(&mut self, at: u32, block: Option<&BlockView>, allocator: &DeviceAllocator) {
        let mut moves = Vec::new();
        for entry in allocator.take_undelivered_trace() {
            match entry.action {
                Action::FreeRequested => {
                    if let Some(index) = self.active.get(&entry.addr) {
                        self.blocks[*index].freed = Some(at);
                    }
                }
                Action::FreeCompleted => {
                    if let Some(index) = self.active.remove(&entry.addr) {
                        self.blocks[index].reusable = Some(at);
                    }
                }
                Action::SegmentAlloc
                | Action::SegmentFree
                | Action::SegmentMap
                | Action::SegmentUnmap => moves.push(entry),
                Action::Alloc | Action::Snapshot | Action::OutOfMemory => {}
            }
        }
        self.ranges.follow(at, &moves, block, allocator);
    }
}

impl Observer for Collector {
    fn begin(&mut self, allocator: &DeviceAllocator) {
        allocator.attach_trace_trackers();
    }

    fn after(&mut self, at: usize, event: &Event, addr: usize, allocator: &DeviceAllocator) {
        let at = at as u32;
        let block = allocator.describe_block(addr);
        self.take_entries(at, block.as_ref(), allocator);
        if let Event::Alloc { bytes, stream, .. } = event {
            let ordinal = self.allocations;
            self.allocations += 1;
            if let Some(view) = block {
                self.active.insert(addr, self.blocks.len());
                self.blocks.push(Block {
                    addr: addr as u64,
                    size: view.size as u64,
                    requested: *bytes,
                    stream: *stream,
                    allocated: at,
                    freed: None,
                    reusable: None,
                    ordinal,
                });
            }
        }
    }

    fn out_of_memory(&mut self, at: usize, report: &OomReport, allocator: &DeviceAllocator) {
        self.take_entries(at as u32, None, allocator);
        let source = self.sources.get(self.allocations as usize);
        let (stream, pool) = source.copied().unwrap_or_default();
        self.out_of_memory = Some(OutOfMemory {
            at: at as u32,
            requested: report.requested as u64,
            stream,
            pool,
            message: report.message.clone(),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use npualloc_replay::replay::replay_observed;

    use super::*;
    use crate::runs;

    #[test]
    fn a_block_that_another_stream_uses_is_freed_before_it_is_reusable() {
        let size = 64 << 20;
        let text = format!(
            "# npualloc-trace v1\na 0 {size} 0\na 1 {size} 0\nu 0 1\nf 1\nf 0\ns *\na 2 {size} 0\n"
        );
        let trace = Trace::parse(Path::new("t"), text.as_bytes()).expect("a good trace");
        let settings = runs::settings("expandable_segments:False").expect("settings");
        let mut collector = Collector::new(&trace);
        replay_observed(&trace, &runs::setup(settings, 1 << 30), &mut collector).expect("it runs");
        let lives: Vec<_> = collector
            .blocks
            .iter()
            .map(|block| (block.allocated, block.freed, block.reusable))
            .collect();
        // Its stream is known to be done when memory is asked for the next time.
        let used = (0, Some(4), Some(6));
        assert_eq!(lives, [used, (1, Some(3), Some(3)), (6, None, None)]);
    }
}
