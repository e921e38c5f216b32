//! The segments of one device.

use crate::ids::{BlockId, PoolId, SegmentId, StreamKey};
use crate::page::PageTable;

/// One driver allocation, or one reserved range of addresses.
#[derive(Debug, Clone)]
pub struct Segment {
    /// Start address, as the driver gave it.
    pub addr: usize,
    /// Bytes.
    pub size: usize,
    /// The leftmost block. Its links lead through the whole segment.
    pub first: BlockId,
    /// The stream that allocated it.
    pub stream: StreamKey,
    /// The pool it belongs to.
    pub pool: PoolId,
    /// Small or large pool.
    pub small: bool,
    /// For a virtual segment, what backs its pages; its size is that of the reservation.
    pub pages: Option<PageTable>,
    /// The device's clock when the segment last became entirely free; meaningless while it is in use.
    pub idle_since: u64,
}

impl Segment {
    /// Bytes of device memory it holds.
    pub fn held_bytes(&self) -> usize {
        self.pages
            .as_ref()
            .map_or(self.size, PageTable::mapped_bytes)
    }
}

/// Segments by id. Slots are reused.
#[derive(Debug, Default)]
pub struct SegmentTable {
    segments: Vec<Option<Segment>>,
    vacant: Vec<SegmentId>,
}

impl SegmentTable {
    /// Adds a segment.
    pub fn insert(&mut self, segment: Segment) -> SegmentId {
        if let Some(id) = self.vacant.pop() {
            self.segments[id.index()] = Some(segment);
            id
        } else {
            self.segments.push(Some(segment));
            SegmentId((self.segments.len() - 1) as u32)
        }
    }

    /// Takes a segment out.
    pub fn remove(&mut self, id: SegmentId) -> Option<Segment> {
        let segment = self.segments.get_mut(id.index())?.take()?;
        self.vacant.push(id);
        Some(segment)
    }

    /// The segment, if there is one of this id.
    pub fn get(&self, id: SegmentId) -> Option<&Segment> {
        self.segments.get(id.index())?.as_ref()
    }

    /// The segment, to change it.
    #[inline]
    pub fn get_mut(&mut self, id: SegmentId) -> Option<&mut Segment> {
        self.segments.get_mut(id.index())?.as_mut()
    }

    /// Every segment.
    pub fn iter(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        self.segments
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| Some((SegmentId(index as u32), slot.as_ref()?)))
    }
}
