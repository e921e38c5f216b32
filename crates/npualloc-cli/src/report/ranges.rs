//! Follows the memory held during a replay: every range of it, from when to when.
//!
//! A snapshot tells all of it, and takes as long as there are blocks. Pages come and go at many events, so what the
//! entries about them say is followed in hand where they are enough; else a snapshot is taken.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use npualloc::device::{BlockView, DeviceAllocator, SegmentInfo};
use npualloc::history::{Action, TraceEntry};
use npualloc::ids::MempoolId;

/// Whose memory, and of what kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Whose blocks it serves.
    pub stream: u32,
    /// Its pool: 0 for the default one, else the position among the trace's + 1.
    pub pool: u16,
    /// Requests above 1 MiB.
    pub large: bool,
    /// Size of its pages, bytes; 0 for a fixed segment.
    pub page: u64,
}

/// Contiguous memory of one segment, from when to when.
#[derive(Debug, Clone)]
pub struct Range {
    /// Where.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
    /// Whose.
    pub owner: Owner,
    /// Since when.
    pub begins: u32,
    /// Until when.
    pub ends: Option<u32>,
}

/// What there is at an address: where it ends, and whose it is.
type Part = (usize, Owner);

/// The ranges of a replay.
#[derive(Debug, Default)]
pub struct Ranges {
    /// In the order of their beginnings.
    pub all: Vec<Range>,
    /// Numbers of private pools by their ids in the allocator.
    pools: HashMap<MempoolId, u16>,
    /// Ranges there are, by address.
    held: BTreeMap<usize, usize>,
    /// What there is, by address. `held` says the same once an event is over.
    now: BTreeMap<usize, Part>,
    /// Addresses at which that changed during an event, and whether what was there was given back.
    changed: BTreeMap<usize, bool>,
    /// Virtual segments with anything mapped, by address: what is mapped in them is their owner's.
    segments: BTreeMap<usize, Part>,
    /// A stream uses memory of another one's segment, or might: no entry tells where.
    mixed: bool,
    /// All streams' large blocks are in one list.
    shared: bool,
    /// How many snapshots were taken.
    snapshots: usize,
}

impl Ranges {
    /// With the numbers of private pools by their ids in the allocator.
    pub fn new(pools: HashMap<MempoolId, u16>) -> Self {
        Self {
            pools,
            ..Self::default()
        }
    }

    /// An event is over that left these entries about segments. `block` is what it allocated.
    pub fn follow(
        &mut self,
        at: u32,
        entries: &[TraceEntry],
        block: Option<&BlockView>,
        allocator: &DeviceAllocator,
    ) {
        let mut clear = true;
        for entry in entries {
            clear &= self.take(entry, block);
        }
        if let Some(block) = block {
            let segment = self.segments.get(&block.base_addr);
            self.mixed |= segment.is_some_and(|(_, owner)| owner.stream != block.stream.0 as u32);
        }
        if !self.shared && allocator.shares_blocks() {
            // Segments change their owner, which no entry tells.
            (self.shared, self.mixed) = (true, true);
        }
        if entries.is_empty() {
            return;
        }
        if !clear || self.mixed {
            self.take_snapshot(allocator);
            self.learn_segment(entries, block);
            self.mixed = self.now.iter().any(|(addr, (_, owner))| {
                let segment = segment_at(&self.segments, *addr);
                owner.page > 0 && segment.is_none_or(|(_, (_, known))| known != *owner)
            });
        }
        self.settle(at);
    }

    /// Changes what there is as an entry says, and the block that the event allocated; `false` where they do not say
    /// enough.
    fn take(&mut self, entry: &TraceEntry, block: Option<&BlockView>) -> bool {
        let (addr, end) = (entry.addr, entry.addr + entry.size);
        match entry.action {
            Action::SegmentAlloc => {
                let Some(block) = block.filter(|block| block.base_addr == addr) else {
                    return false;
                };
                let owner = self.owner_by(entry, block);
                self.add(addr, end, owner, addr..end);
                true
            }
            Action::SegmentMap => {
                if segment_at(&self.segments, addr).is_none()
                    && let Some(block) = block
                    && (block.base_addr..block.base_addr + block.base_size).contains(&addr)
                {
                    let owner = self.owner_by(entry, block);
                    let limit = block.base_addr + block.base_size;
                    self.segments.insert(block.base_addr, (limit, owner));
                }
                let Some((base, (limit, owner))) = segment_at(&self.segments, addr) else {
                    return false;
                };
                let same = owner.stream == entry.stream.0 as u32
                    && owner.pool == self.number_of(&entry.pool);
                if !same || end > limit {
                    return false;
                }
                self.add(addr, end, owner, base..limit);
                true
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                self.remove(addr, end);
                true
            }
            _ => false,
        }
    }

    /// Whose memory it is that an entry tells of, in a block's segment. The block may be another stream's.
    fn owner_by(&self, entry: &TraceEntry, block: &BlockView) -> Owner {
        Owner {
            stream: entry.stream.0 as u32,
            pool: self.number_of(&entry.pool),
            large: block.large,
            page: block.page_size.unwrap_or(0) as u64,
        }
    }

    /// Adds to what there is, as one part with what is beside it in the segment.
    fn add(&mut self, addr: usize, end: usize, owner: Owner, segment: std::ops::Range<usize>) {
        let (mut addr, mut end) = (addr, end);
        let before = self.now.range(segment.start..addr).next_back();
        if let Some((&first, &(last, other))) = before
            && last == addr
            && other == owner
        {
            addr = first;
        }
        if segment.contains(&end)
            && let Some(&(last, other)) = self.now.get(&end)
            && other == owner
        {
            self.now.remove(&end);
            self.changed.entry(end).or_default();
            end = last;
        }
        self.now.insert(addr, (end, owner));
        self.changed.entry(addr).or_default();
    }

    /// Takes memory away from what there is, of however many parts.
    fn remove(&mut self, addr: usize, end: usize) {
        *self.changed.entry(addr).or_default() = true;
        let before = self.now.range(..addr).next_back();
        let before = before.filter(|(_, (last, _))| *last > addr);
        let first = before.map_or(addr, |(first, _)| *first);
        let parts: Vec<_> = self.now.range(first..end).map(|(a, p)| (*a, *p)).collect();
        for (from, (to, owner)) in parts {
            self.now.remove(&from);
            self.changed.entry(from).or_default();
            if from < addr {
                self.now.insert(from, (addr, owner));
            }
            if to > end {
                self.now.insert(end, (to, owner));
                self.changed.entry(end).or_default();
            }
        }
        // An empty range of addresses may be released, and be another's then.
        if let Some((base, (limit, _))) = segment_at(&self.segments, addr)
            && self.now.range(base..limit).next().is_none()
        {
            self.segments.remove(&base);
        }
    }

    fn take_snapshot(&mut self, allocator: &DeviceAllocator) {
        self.snapshots += 1;
        let infos = allocator.snapshot(MempoolId::DEFAULT);
        // Taking a snapshot makes an entry.
        drop(allocator.take_undelivered_trace());
        let part = |info: &SegmentInfo| {
            let owner = Owner {
                stream: info.stream.0 as u32,
                pool: self.number_of(&info.pool),
                large: info.large,
                page: info.page_size.unwrap_or(0) as u64,
            };
            (info.addr, (info.addr + info.total_size, owner))
        };
        self.now = infos.iter().map(part).collect();
        let addresses: BTreeSet<usize> = self.held.keys().chain(self.now.keys()).copied().collect();
        for addr in addresses {
            self.changed.entry(addr).or_default();
        }
    }

    /// The segment of a new block, where something was mapped in it. Its stream is that of the entry: of the block
    /// it may be another.
    fn learn_segment(&mut self, entries: &[TraceEntry], block: Option<&BlockView>) {
        let Some(block) = block else { return };
        let (base, limit) = (block.base_addr, block.base_addr + block.base_size);
        let mapped = entries.iter().rev().find(|entry| {
            entry.action == Action::SegmentMap && (base..limit).contains(&entry.addr)
        });
        let Some(entry) = mapped else { return };
        if let Some((_, (_, owner))) = segment_at(&self.now, entry.addr) {
            let owner = Owner {
                stream: entry.stream.0 as u32,
                ..owner
            };
            self.segments.insert(base, (limit, owner));
        }
    }

    /// Ends and begins ranges where something changed. What was given back and is there again is another range.
    fn settle(&mut self, at: u32) {
        for (addr, given_back) in std::mem::take(&mut self.changed) {
            let part = self.now.get(&addr);
            if let Some(&index) = self.held.get(&addr) {
                let range = &mut self.all[index];
                let stays = part.is_some_and(|(end, owner)| {
                    (end - addr) as u64 == range.size && *owner == range.owner
                });
                if stays && !given_back {
                    continue;
                }
                range.ends = Some(at);
                self.held.remove(&addr);
            }
            if let Some((end, owner)) = part {
                self.held.insert(addr, self.all.len());
                self.all.push(Range {
                    addr: addr as u64,
                    size: (end - addr) as u64,
                    owner: *owner,
                    begins: at,
                    ends: None,
                });
            }
        }
    }

    fn number_of(&self, pool: &MempoolId) -> u16 {
        self.pools.get(pool).copied().unwrap_or(0)
    }
}

/// What holds an address.
fn segment_at(parts: &BTreeMap<usize, Part>, addr: usize) -> Option<(usize, Part)> {
    let (base, part) = parts.range(..=addr).next_back()?;
    (addr < part.0).then_some((*base, *part))
}

#[cfg(test)]
mod tests;
