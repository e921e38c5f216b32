//! Free blocks whose memory can move: which there are, and which go first. Pure.

use std::ops::Range;

use crate::block::BlockState;
use crate::device::state::State;
use crate::ids::{BlockId, StreamKey};
use crate::page::LastUse;

/// Parts of two pages are left behind where a block between two others gives its pages away, and serve nobody but a request
/// for the same place: fewer pages than this are not worth it while there are others.
const WORTH_A_HOLE: usize = 8;

/// A free block with whole idle pages.
#[derive(Debug, Clone)]
pub(in crate::device) struct Donor {
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
    /// Free blocks whose pages may be taken for a request: of the default pool and of private pools out
    /// of use, since a pool in use may be part of a graph that is replayed at its addresses. A graph's last
    /// replay may run still, on any stream, when its pool is released: the device must have been waited for since.
    pub(in crate::device) fn donors(&self) -> Vec<Donor> {
        let mut donors = Vec::new();
        for (_, list) in self.lists.iter().filter(|(id, _)| id.is_virtual()) {
            let in_use = self.pools.get(list.pool).is_some_and(|p| p.use_count > 0);
            let replayed = self
                .pools
                .is_of_graph(list.pool, self.fences.synchronised());
            if in_use || replayed || self.sleep.has(list.pool) {
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

    /// Whether a block that gives its pages away leaves a hole where there was none beside it.
    fn makes_a_hole(&self, id: BlockId) -> bool {
        let block = &self.arena[id];
        !self.arena.is_unmapped(block.prev) && !self.arena.is_unmapped(block.next)
    }

    /// Whether a donor is what it was before the lock was released, and awake.
    pub(super) fn is_unchanged(&self, donor: &Donor) -> bool {
        let block = &self.arena[donor.block];
        block.state == BlockState::Free
            && block.addr == donor.addr
            && !self.sleep.has(self.lists[block.list].pool)
            && self.freed_at(donor.block) <= donor.freed
    }

    /// Those in pages of a size that a stream may have without waiting, in the order in which they are taken.
    pub(super) fn donors_for(&self, page_size: usize, stream: StreamKey) -> Vec<Donor> {
        let mut donors = self.donors();
        donors.retain(|donor| {
            donor.page_size == page_size && self.may_serve(donor.last_use(), stream)
        });
        // Windows are looked for from low addresses on. Taking memory from there too keeps what moves together,
        // and free blocks elsewhere whole. New holes come later: for few pages, and where every page counts for any.
        // What a plan has blocks on comes last, high addresses first: the lowest have the largest blocks.
        let (tight, planned) = (self.is_tight(), self.planning.addresses());
        donors.sort_unstable_by_key(|donor| {
            if planned.contains(&donor.addr) {
                return (true, true, true, usize::MAX - donor.addr);
            }
            let new = self.makes_a_hole(donor.block);
            let few = donor.pages() < WORTH_A_HOLE;
            (false, new && few, new && tight, donor.addr)
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

    /// Blocks of these sizes, MiB, one after another, of which the second and the last are free: one between two others,
    /// and one beside unmapped addresses.
    fn between_and_at_the_end(sizes: [usize; 4]) -> (DeviceAllocator, usize) {
        let driver = Arc::new(FakeDriver::new(512 * MIB));
        let mut settings = Settings::parse("expandable_segments:True").expect("valid");
        settings.segment_size = 8 * MIB;
        let device = DeviceAllocator::new(DeviceId(0), driver, settings, 32).expect("device");
        let stream = StreamKey(0);
        let blocks = sizes.map(|size| device.allocate(size * MIB - 4096, stream).expect("fits"));
        assert!(device.deallocate(blocks[1]));
        assert!(device.deallocate(blocks[3]));
        device.state.lock().budget.device_full = true;
        (device, blocks[2])
    }

    /// Whether each donor lies before the block in use, in order.
    fn order(device: &DeviceAllocator, used: usize) -> Vec<bool> {
        let state = device.state.lock();
        let donors = state.donors_for(8 * MIB, StreamKey(0));
        donors.iter().map(|donor| donor.addr < used).collect()
    }

    #[test]
    fn a_new_hole_is_made_last_for_few_pages() {
        let (device, used) = between_and_at_the_end([16, 56, 16, 16]);
        assert_eq!(order(&device, used), [false, true]);
        let (device, used) = between_and_at_the_end([16, 64, 16, 16]);
        assert_eq!(order(&device, used), [true, false]);
    }

    #[test]
    fn new_holes_are_made_last_where_every_page_counts() {
        let (device, used) = between_and_at_the_end([16, 80, 16, 16]);
        let mut state = device.state.lock();
        state.budget.most_full = state.reserved();
        drop(state);
        assert_eq!(order(&device, used), [false, true]);
    }
}
