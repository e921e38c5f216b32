//! Memory snapshots of torch (`_dump_snapshot`, NPU and CUDA) as recordings.
//!
//! A snapshot holds the last so many trace entries of each device and the blocks there are at the end.
//! What was alive before the first entry is known from being freed later, or from being there at the end
//! without an entry: such blocks are allocated first. A block counts as freed when it became reusable, so
//! the uses by other streams, which no entry tells, have their effect without being named. A private pool
//! counts as released after its last free if nothing at the end is its.

use std::collections::{HashMap, HashSet};

use npualloc_replay::trace::{Event, Trace};

use crate::pickle::{Heap, Value};

mod error;
mod stacks;

use error::MAX_BLOCKS;
pub use error::SnapshotError;
use stacks::Stacks;

/// More than any device has.
const MAX_STREAMS: usize = 1024;
/// What a snapshot consists of, for people.
const ENTRY: &str = "an entry";
const BLOCK: &str = "a block";
/// More memory than there is.
const ONE_EXBIBYTE: u64 = 1 << 60;

/// A snapshot as a trace, with the stacks of its allocations.
#[derive(Debug, Default)]
pub struct Converted {
    /// What happened.
    pub trace: Trace,
    /// Stacks, a frame a line; the first is empty.
    pub stacks: Vec<String>,
    /// Position in `stacks` for each allocation.
    pub stack_of: Vec<u32>,
}

/// Reads a device of a snapshot; without one the first that has entries or blocks.
///
/// # Errors
/// When it is no snapshot, or the device is not in it.
pub fn convert(
    heap: &Heap,
    snapshot: Value,
    device: Option<usize>,
) -> Result<Converted, SnapshotError> {
    let list = |key, missing| {
        let found = heap.get(snapshot, key).and_then(|value| heap.list(value));
        found.ok_or(SnapshotError::Foreign { missing })
    };
    let segments = list("segments", "\"segments\"")?;
    let traces = list("device_traces", "\"device_traces\"")?;
    let segments_of = |device: usize| {
        let all = segments.iter().copied();
        all.filter(move |segment| heap.number(*segment, "device") == Some(device as u64))
    };
    let device = match device {
        Some(device) if device >= traces.len() => {
            return Err(SnapshotError::NoDevice {
                device,
                count: traces.len(),
            });
        }
        Some(device) => device,
        None => {
            let all = segments.iter();
            let held: HashSet<u64> = all
                .filter_map(|segment| heap.number(*segment, "device"))
                .collect();
            let used = |device: &usize| {
                let entries = heap
                    .list(traces[*device])
                    .is_some_and(|all| !all.is_empty());
                entries || held.contains(&(*device as u64))
            };
            (0..traces.len()).find(used).unwrap_or(0)
        }
    };
    let none = [];
    let entries = traces.get(device).and_then(|all| heap.list(*all));
    let mut converter = Converter::new(heap);
    converter.add_early_blocks(entries.unwrap_or(&none), segments_of(device));
    for entry in entries.unwrap_or(&none) {
        converter.add(*entry);
    }
    let kept =
        segments_of(device).filter_map(|segment| converter.id_in(segment, "segment_pool_id"));
    let kept = kept.collect();
    converter.release_pools(&kept);
    converter.finish()
}

struct Converter<'a> {
    heap: &'a Heap,
    converted: Converted,
    /// Streams by their handles, numbered as they appear.
    streams: HashMap<u64, u32>,
    /// Private pools by their ids, numbered from 1 as they appear; and the event behind the last free of
    /// each.
    pools: HashMap<(u64, u64), u16>,
    last_frees: Vec<usize>,
    /// Blocks alive by address: number, bytes, pool.
    alive: HashMap<u64, (u32, u64, u16)>,
    bytes: u64,
    stacks: Stacks<'a>,
    absurd: bool,
    damaged: Option<SnapshotError>,
    /// Blocks of segments looked at.
    looked_at: usize,
}

impl<'a> Converter<'a> {
    fn new(heap: &'a Heap) -> Self {
        Self {
            heap,
            converted: Converted::default(),
            streams: HashMap::new(),
            pools: HashMap::new(),
            last_frees: Vec::new(),
            alive: HashMap::new(),
            bytes: 0,
            stacks: Stacks::new(heap),
            absurd: false,
            damaged: None,
            looked_at: 0,
        }
    }

    /// Blocks that are freed, or there at the end, without having been allocated in an entry.
    fn add_early_blocks(&mut self, entries: &[Value], segments: impl Iterator<Item = Value>) {
        let mut allocated: HashMap<u64, bool> = HashMap::new();
        let mut early = Vec::new();
        for entry in entries {
            let action = self.action(*entry);
            if !matches!(action, Some("alloc" | "free_completed")) {
                continue;
            }
            let addr = self.number(*entry, "addr", ENTRY);
            let alloc = action == Some("alloc");
            if allocated.insert(addr, alloc).is_none() && !alloc {
                early.push((*entry, addr, self.number(*entry, "size", ENTRY)));
            }
        }
        for segment in segments {
            let blocks = self.heap.get(segment, "blocks");
            let mut next = self.heap.number(segment, "address");
            for block in blocks.and_then(|all| self.heap.list(all)).unwrap_or(&[]) {
                self.looked_at += 1;
                if self.looked_at > MAX_BLOCKS {
                    return;
                }
                let addr = match self.heap.number(*block, "address").or(next) {
                    Some(addr) => addr,
                    None => self.number(*block, "address", BLOCK),
                };
                let size = self.number(*block, "size", BLOCK);
                next = Some(addr.saturating_add(size));
                let state = self.heap.get(*block, "state");
                let state = state.and_then(|state| self.heap.text(state));
                if state.is_some_and(|state| state.starts_with("active"))
                    && !allocated.contains_key(&addr)
                {
                    // Snapshots of older versions don't tell.
                    let asked = match self.heap.get(*block, "requested_size") {
                        Some(_) => self.number(*block, "requested_size", BLOCK),
                        None => size,
                    };
                    let stream = self.heap.bits(segment, "stream").unwrap_or(0);
                    let pool = self.pool(segment, "segment_pool_id");
                    self.allocate(addr, asked, (stream, pool), *block);
                }
            }
        }
        for (entry, addr, size) in early {
            let stream = self.heap.bits(entry, "stream").unwrap_or(0);
            let pool = self.pool(entry, "pool_id");
            self.allocate(addr, size, (stream, pool), Value::None);
        }
        if !self.converted.trace.events.is_empty() {
            self.mark("the recorded history begins");
        }
    }

    fn action(&self, entry: Value) -> Option<&'a str> {
        let action = self.heap.get(entry, "action")?;
        self.heap.text(action)
    }

    /// A number of bytes, or an address, that has to be there.
    fn number(&mut self, described: Value, key: &'static str, what: &'static str) -> u64 {
        self.heap.number(described, key).unwrap_or_else(|| {
            self.damaged
                .get_or_insert(SnapshotError::Damaged { what, key });
            0
        })
    }

    fn add(&mut self, entry: Value) {
        match self.action(entry) {
            Some("alloc") => {
                let addr = self.number(entry, "addr", ENTRY);
                let size = self.number(entry, "size", ENTRY);
                let stream = self.heap.bits(entry, "stream").unwrap_or(0);
                let pool = self.pool(entry, "pool_id");
                self.allocate(addr, size, (stream, pool), entry);
            }
            Some("free_completed") => {
                let addr = self.number(entry, "addr", ENTRY);
                self.free(addr);
            }
            Some("oom") => self.fail(entry),
            _ => {}
        }
    }

    /// A request that failed, as recordings have it: an allocation that is freed at once.
    fn fail(&mut self, entry: Value) {
        let asked = self.number(entry, "size", ENTRY);
        self.mark(&format!("out of memory: {asked} bytes"));
        let stream = self.heap.bits(entry, "stream").unwrap_or(0);
        let pool = self.pool(entry, "pool_id");
        // More than any device has, whatever was asked for.
        let bytes = asked.min((ONE_EXBIBYTE - 1).saturating_sub(self.bytes));
        let block = self.request(bytes, (stream, pool), entry);
        let trace = &mut self.converted.trace;
        trace.events.push(Event::Free { block });
        trace.failed.push(block);
        if let Some(at) = (pool as usize).checked_sub(1) {
            self.last_frees[at] = trace.events.len();
        }
    }

    fn mark(&mut self, text: &str) {
        let trace = &mut self.converted.trace;
        let label = trace.labels.len() as u32;
        trace.labels.push(text.to_owned());
        trace.events.push(Event::Mark { label });
    }

    /// A pool's id under a key; `None` for the default pool.
    fn id_in(&self, described: Value, key: &str) -> Option<(u64, u64)> {
        let id = self.heap.list(self.heap.get(described, key)?)?;
        let [Value::Int(first), Value::Int(second)] = *id else {
            return None;
        };
        let id = (first.cast_unsigned(), second.cast_unsigned());
        (id != (0, 0)).then_some(id)
    }

    /// The number of a pool, 0 for the default one.
    fn pool(&mut self, described: Value, key: &str) -> u16 {
        let Some(id) = self.id_in(described, key) else {
            return 0;
        };
        if let Some(number) = self.pools.get(&id) {
            return *number;
        }
        let Ok(number) = u16::try_from(self.pools.len() + 1) else {
            self.absurd = true;
            return 0;
        };
        self.pools.insert(id, number);
        self.last_frees.push(0);
        self.converted.trace.pools.push(id);
        number
    }

    /// Pools of which there is nothing at the end, neither a live block nor one of the segments `kept`.
    fn release_pools(&mut self, kept: &HashSet<(u64, u64)>) {
        let used: HashSet<u16> = self.alive.values().map(|(_, _, pool)| *pool).collect();
        let mut gone: Vec<(usize, u16)> = self
            .pools
            .iter()
            .filter(|(id, number)| !kept.contains(*id) && !used.contains(*number))
            .map(|(_, number)| (self.last_frees[*number as usize - 1], *number))
            .collect();
        gone.sort_unstable();
        let events = &mut self.converted.trace.events;
        let mut all = Vec::with_capacity(events.len() + gone.len());
        let mut gone = gone.into_iter().peekable();
        for (at, event) in std::mem::take(events).into_iter().enumerate() {
            while let Some((_, pool)) = gone.next_if(|(behind, _)| *behind <= at) {
                all.push(Event::ReleasePool { pool });
            }
            all.push(event);
        }
        all.extend(gone.map(|(_, pool)| Event::ReleasePool { pool }));
        *events = all;
    }

    fn allocate(&mut self, addr: u64, bytes: u64, (stream, pool): (u64, u16), described: Value) {
        // An entry may be lost; what is at an address now replaces what was.
        self.free(addr);
        let block = self.request(bytes, (stream, pool), described);
        self.alive.insert(addr, (block, bytes, pool));
        self.bytes = self.bytes.saturating_add(bytes);
        self.absurd |= bytes >= ONE_EXBIBYTE || self.bytes >= ONE_EXBIBYTE;
        let trace = &mut self.converted.trace;
        trace.peak_live = trace.peak_live.max(self.bytes);
    }

    /// The next allocation, by its number.
    fn request(&mut self, bytes: u64, (stream, pool): (u64, u16), described: Value) -> u32 {
        let next = self.streams.len() as u32;
        let stream = *self.streams.entry(stream).or_insert(next);
        self.absurd |= stream as usize >= MAX_STREAMS;
        let stack = self.stacks.of(described);
        let trace = &mut self.converted.trace;
        let block = trace.blocks;
        trace.blocks += 1;
        trace.streams = trace.streams.max(stream + 1);
        trace.events.push(Event::Alloc {
            bytes,
            stream,
            pool,
        });
        self.converted.stack_of.push(stack);
        block
    }

    fn free(&mut self, addr: u64) {
        if let Some((block, bytes, pool)) = self.alive.remove(&addr) {
            self.bytes = self.bytes.saturating_sub(bytes);
            let events = &mut self.converted.trace.events;
            events.push(Event::Free { block });
            if let Some(at) = (pool as usize).checked_sub(1) {
                self.last_frees[at] = events.len();
            }
        }
    }

    fn finish(mut self) -> Result<Converted, SnapshotError> {
        if let Some(damaged) = self.damaged {
            return Err(damaged);
        }
        if self.absurd {
            return Err(SnapshotError::Absurd);
        }
        if self.looked_at > MAX_BLOCKS || self.stacks.are_too_long() {
            return Err(SnapshotError::TooMuch);
        }
        self.converted.stacks = self.stacks.into_texts();
        if self.converted.stacks.len() == 1 {
            self.converted.stack_of.clear();
        }
        "a memory snapshot".clone_into(&mut self.converted.trace.workload);
        Ok(self.converted)
    }
}
