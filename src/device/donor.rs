//! Free blocks whose memory can move: which there are, and which go first. Pure.

use std::ops::Range;

use super::state::State;
use crate::block::BlockState;
use crate::ids::{BlockId, StreamKey};
use crate::page::LastUse;

/// A free block with whole idle pages.
#[derive(Debug, Clone)]
pub(super) struct Donor {
    pub block: BlockId,
    pub addr: usize,
    pub stream: StreamKey,
    /// When it was freed, on the device's clock.
    pub freed: u64,
    pub page_size: usize,
    pub range: Range<usize>,
}

impl Donor {
    pub fn last_use(&self) -> LastUse {
        LastUse {
            stream: self.stream,
            tick: self.freed,
        }
    }

    pub fn pages(&self) -> usize {
        self.range.len()
    }
}

impl State {
    /// When a free block was freed, on the device's clock.
    pub(super) fn freed_at(&self, id: BlockId) -> u64 {
        let age = (self.tick as u32).wrapping_sub(self.arena[id].free_since);
        self.tick.saturating_sub(age.into())
    }

    /// Free blocks whose pages may be taken for a request: of the default pool and of private pools out
    /// of use, since a pool in use may be part of a graph that is replayed at its addresses.
    pub(super) fn donors(&self) -> Vec<Donor> {
        let mut donors = Vec::new();
        for (_, list) in self.lists.iter().filter(|(id, _)| id.is_virtual()) {
            let in_use = self.pools.get(list.pool).is_some_and(|p| p.use_count > 0);
            if in_use || self.is_asleep(list.pool) {
                continue;
            }
            for block in list.free.iter_from(&self.arena, list.least_page) {
                let (Some(range), Some(pages)) = (self.idle_pages(block), self.pages_of(block))
                else {
                    continue;
                };
                donors.push(Donor {
                    block,
                    addr: self.arena[block].addr,
                    stream: list.stream,
                    freed: self.freed_at(block),
                    page_size: pages.page_size(),
                    range,
                });
            }
        }
        donors
    }

    /// Whether the memory on either side of a block is not mapped.
    fn is_beside_unmapped(&self, id: BlockId) -> bool {
        let block = &self.arena[id];
        self.arena.is_unmapped(block.prev) || self.arena.is_unmapped(block.next)
    }

    /// Whether a donor is what it was before the lock was released, and awake.
    pub(super) fn is_unchanged(&self, donor: &Donor) -> bool {
        let block = &self.arena[donor.block];
        block.state == BlockState::Free
            && block.addr == donor.addr
            && !self.is_asleep(self.lists[block.list].pool)
            && self.freed_at(donor.block) <= donor.freed
    }

    /// Those in pages of a size that a stream may have without waiting, in the order in which they are taken.
    pub(super) fn donors_for(&self, page_size: usize, stream: StreamKey) -> Vec<Donor> {
        let mut donors = self.donors();
        donors.retain(|donor| {
            donor.page_size == page_size && self.may_serve(donor.last_use(), stream)
        });
        // Windows are looked for from low addresses on. Taking memory from there too keeps what moves together,
        // and free blocks elsewhere whole; so does widening holes, where a page that moves leaves one.
        let leaves_holes = !self.leaves_mappings(page_size) || self.is_tight_at_worst();
        donors.sort_unstable_by_key(|donor| {
            let widens = self.is_beside_unmapped(donor.block);
            (leaves_holes && !widens, donor.addr)
        });
        donors
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Settings;
    use crate::device::DeviceAllocator;
    use crate::driver::fake::FakeDriver;
    use crate::ids::DeviceId;

    const MIB: usize = 1 << 20;

    #[test]
    fn holes_are_widened_first_where_every_page_counts() {
        let driver = Arc::new(FakeDriver::new(512 * MIB));
        let mut settings = Settings::parse("expandable_segments:True").expect("valid");
        settings.segment_size = 8 * MIB;
        let device = DeviceAllocator::new(DeviceId(0), driver, settings, 32).expect("device");
        let stream = StreamKey(0);
        let blocks = [0; 4].map(|_| device.allocate(16 * MIB - 4096, stream).expect("fits"));
        // One between two others, and the last, beside unmapped addresses.
        assert!(device.deallocate(blocks[1]));
        assert!(device.deallocate(blocks[3]));
        let mut state = device.state.lock();
        state.device_full = true;
        let order = |state: &State| -> Vec<bool> {
            let donors = state.donors_for(8 * MIB, stream);
            donors.iter().map(|d| d.addr < blocks[2]).collect()
        };
        assert_eq!(order(&state), [true, false]);
        state.most_full = state.reserved();
        assert_eq!(order(&state), [false, true]);
    }
}
