//! Watches a replay: every block and every range of memory, from when to when.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use npualloc::device::DeviceAllocator;
use npualloc::error::OomReport;
use npualloc::history::Action;
use npualloc::ids::MempoolId;
use npualloc_replay::pools;
use npualloc_replay::replay::Observer;
use npualloc_replay::trace::{Event, Trace};

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

/// Contiguous memory of one segment, from when to when.
#[derive(Debug, Clone)]
pub struct Range {
    /// Where.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
    /// Whose blocks it serves.
    pub stream: u32,
    /// Requests above 1 MiB.
    pub large: bool,
    /// Its pool: 0 for the default one, else the position among the trace's + 1.
    pub pool: u16,
    /// Size of its pages, bytes; 0 for a fixed segment.
    pub page: u64,
    /// Since when.
    pub begins: u32,
    /// Until when.
    pub ends: Option<u32>,
}

impl Range {
    /// Whether it is the same memory of the same owner, at whatever time.
    fn is_same(&self, other: &Self) -> bool {
        let what = |range: &Self| (range.addr, range.size, range.page);
        let whose = |range: &Self| (range.stream, range.pool, range.large);
        what(self) == what(other) && whose(self) == whose(other)
    }
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
    /// In the order of their beginnings.
    pub ranges: Vec<Range>,
    /// If it happened.
    pub out_of_memory: Option<OutOfMemory>,
    /// Streams and pools of the trace's allocations, in order.
    sources: Vec<(u32, u16)>,
    /// Numbers of private pools by their ids in the allocator.
    pools: HashMap<MempoolId, u16>,
    allocations: u32,
    /// Blocks in use by address.
    active: HashMap<usize, usize>,
    /// Ranges there are by address.
    held: BTreeMap<usize, usize>,
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
            pools: pools::ids(&trace.pools).zip(1..).collect(),
            ..Self::default()
        }
    }

    fn take_entries(&mut self, at: u32, allocator: &DeviceAllocator) {
        let mut moved = false;
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
                Action::SegmentAlloc | Action::SegmentMap => moved = true,
                Action::SegmentFree | Action::SegmentUnmap => {
                    moved = true;
                    // The same address may be taken again before the event is over.
                    if let Some(index) = self.held.remove(&entry.addr) {
                        self.ranges[index].ends = Some(at);
                    }
                }
                Action::Alloc | Action::Snapshot | Action::OutOfMemory => {}
            }
        }
        if moved {
            self.follow_ranges(at, allocator);
        }
    }

    /// A range that changed its size or its owner is another one.
    fn follow_ranges(&mut self, at: u32, allocator: &DeviceAllocator) {
        let now = allocator.snapshot(MempoolId::DEFAULT);
        // Taking a snapshot makes an entry.
        drop(allocator.take_undelivered_trace());
        let now: BTreeMap<usize, Range> = now
            .iter()
            .map(|info| {
                let range = Range {
                    addr: info.addr as u64,
                    size: info.total_size as u64,
                    stream: info.stream.0 as u32,
                    large: info.large,
                    pool: self.pools.get(&info.pool).copied().unwrap_or(0),
                    page: info.page_size.unwrap_or(0) as u64,
                    begins: at,
                    ends: None,
                };
                (info.addr, range)
            })
            .collect();
        let ranges = &mut self.ranges;
        self.held.retain(|addr, index| {
            let stays = now
                .get(addr)
                .is_some_and(|range| range.is_same(&ranges[*index]));
            if !stays {
                ranges[*index].ends = Some(at);
            }
            stays
        });
        for (addr, range) in now {
            if let Entry::Vacant(place) = self.held.entry(addr) {
                place.insert(self.ranges.len());
                self.ranges.push(range);
            }
        }
    }
}

impl Observer for Collector {
    fn begin(&mut self, allocator: &DeviceAllocator) {
        allocator.attach_trace_trackers();
    }

    fn after(&mut self, at: usize, event: &Event, addr: usize, allocator: &DeviceAllocator) {
        let at = at as u32;
        self.take_entries(at, allocator);
        if let Event::Alloc { bytes, stream, .. } = event {
            let ordinal = self.allocations;
            self.allocations += 1;
            if let Some(view) = allocator.describe_block(addr) {
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
        self.take_entries(at as u32, allocator);
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
    use super::*;
    use crate::runs;
    use npualloc_replay::replay::replay_observed;
    use std::path::Path;

    fn collect(conf: &str, text: &str) -> Collector {
        let text = format!("# npualloc-trace v1\n{text}");
        let trace = Trace::parse(Path::new("t"), text.as_bytes()).expect("a trace");
        let capacity = runs::capacity(None, &trace).expect("a capacity");
        let setup = runs::setup(runs::settings(conf).expect("settings"), capacity);
        let mut collector = Collector::new(&trace);
        replay_observed(&trace, &setup, &mut collector).expect("replayed");
        collector
    }

    /// Whose it is, since when and until when, of every range.
    fn lives(collector: &Collector) -> Vec<(u32, u16, u32, Option<u32>)> {
        let ranges = collector.ranges.iter();
        ranges
            .map(|range| (range.stream, range.pool, range.begins, range.ends))
            .collect()
    }

    /// Of 64 MiB no second segment has room: the first is given back for it, and the driver gives its address out
    /// again.
    #[test]
    fn an_address_taken_again_within_an_event_is_another_range() {
        let fixed = "expandable_segments:False";
        let first = "# capacity 67108864\np 7 7\na 0 41943040 0\nf 0\ns *\n";
        let other = collect(fixed, &format!("{first}a 1 41943040 1 0 1\n"));
        assert_eq!(other.ranges[0].addr, other.ranges[1].addr);
        assert_eq!(lives(&other), [(0, 0, 0, Some(3)), (1, 1, 3, None)]);
        // The owner is the same, and so is the size: what is as large as `max_split_size_mb` is for larger requests.
        let oversize = "expandable_segments:False,max_split_size_mb:20";
        let small = "# capacity 33554432\na 0 5242880 0\nf 0\ns *\na 1 5242880 0\n";
        let same = collect(oversize, small);
        assert_eq!(same.ranges[0].addr, same.ranges[1].addr);
        assert_eq!(lives(&same), [(0, 0, 0, Some(3)), (0, 0, 3, None)]);
    }
}
