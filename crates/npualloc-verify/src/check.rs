//! What must hold after each step.

use std::collections::BTreeMap;

use npualloc::error::OomReport;
use npualloc::ids::MempoolId;

use crate::pools::pool_id;
use crate::world::World;

const MIB: usize = 1 << 20;

impl World {
    /// Compares the allocator with the model.
    ///
    /// # Panics
    /// When a rule is broken.
    pub fn check(&self) {
        self.registry.check_consistency().expect("consistent");
        self.check_contents();
        for device in 0..self.devices.len() as u32 {
            self.check_statistics(device);
        }
    }

    /// Live blocks overlap neither in addresses nor in memory, and each keeps its memory.
    fn check_contents(&self) {
        let mut places: Vec<_> = self
            .live
            .iter()
            .map(|b| (b.device, b.addr, b.size))
            .collect();
        places.sort_unstable();
        for pair in places.windows(2) {
            let apart = pair[0].0 != pair[1].0 || pair[0].1 + pair[0].2 <= pair[1].1;
            assert!(apart, "live blocks overlap at {:#x}", pair[1].1);
        }
        let mut memory = Vec::new();
        for block in &self.live {
            let spans = self
                .driver
                .inner
                .spans(block.device, block.addr, block.size);
            assert_eq!(
                spans.as_ref(),
                Some(&block.spans),
                "the memory under {:#x} has changed",
                block.addr
            );
            memory.extend(block.spans.iter().map(|span| (block.device, *span)));
        }
        memory.sort_unstable();
        for pair in memory.windows(2) {
            let ((device, one), (other, two)) = (pair[0], pair[1]);
            let apart =
                (device, one.handle) != (other, two.handle) || one.start + one.bytes <= two.start;
            assert!(apart, "live blocks share memory: {one:?}, {two:?}");
        }
    }

    fn check_statistics(&self, device: u32) {
        let (stats, _) = self.device(device).stats();
        let model = &self.devices[device as usize];
        let live = || self.live.iter().filter(|block| block.device == device);
        let counted = stats.allocation.aggregate();
        assert_eq!(counted.current, live().count() as i64, "live blocks");
        assert_eq!(counted.allocated, model.allocated, "allocations");
        assert_eq!(counted.freed, model.freed, "frees");
        assert_eq!(stats.num_ooms, model.ooms, "out-of-memory errors");
        let bytes: usize = live().map(|block| block.size).sum();
        assert_eq!(
            stats.allocated_bytes.current() as usize,
            bytes,
            "allocated bytes"
        );
        let asked: usize = live().map(|block| block.bytes).sum();
        assert!(
            stats.requested_bytes.current() as usize >= asked,
            "requested bytes"
        );
        assert!(
            stats.active_bytes.current() as usize >= bytes,
            "active bytes"
        );
        let held = self.driver.inner.held(device);
        let reserved = stats.reserved_bytes.current() as usize;
        if !self.virtual_memory {
            let left = stats.num_device_alloc - stats.num_device_free;
            assert_eq!(left as usize, held.0, "calls that obtain and return memory");
        }
        let idle = self.device(device).idle_physical_bytes();
        assert_eq!(reserved + idle, held.1, "bytes lost or invented");
        assert_eq!(
            stats.segment.current() as usize,
            held.0,
            "segments lost or invented"
        );
    }

    /// A snapshot shows exactly the live blocks, and all the memory.
    pub(crate) fn check_snapshot(&self, device: u32) {
        let allocator = self.device(device);
        let mut shown = BTreeMap::new();
        let mut total = 0;
        for segment in allocator.snapshot(MempoolId::DEFAULT) {
            total += segment.total_size;
            let mut addr = segment.addr;
            for block in &segment.blocks {
                if block.allocated {
                    shown.insert(addr, (block.size, block.requested));
                }
                addr += block.size;
            }
            assert_eq!(
                addr,
                segment.addr + segment.total_size,
                "a snapshot with a gap"
            );
        }
        let live = self.live.iter().filter(|block| block.device == device);
        let live: BTreeMap<_, _> = live.map(|b| (b.addr, (b.size, b.bytes))).collect();
        assert_eq!(shown, live, "the snapshot shows other blocks");
        let (stats, _) = allocator.stats();
        assert_eq!(
            total,
            stats.reserved_bytes.current() as usize,
            "the snapshot's bytes"
        );
    }

    /// Memory had run out: there was no room for what the request needs, neither on the device nor under
    /// the limit, after all that is idle went back.
    pub(crate) fn check_out_of_memory(&self, device: u32, bytes: usize, report: &OomReport) {
        let held = self.driver.inner.held(device).1;
        // What a capture forbids to wait for may stay.
        let captured = self.devices.iter().any(|device| device.captures > 0);
        let held = if captured {
            held
        } else {
            held.min(self.in_use(device))
        };
        let others = self.devices[device as usize].others;
        let mut room = self.capacity.saturating_sub(held + others);
        if let Some(limit) = report.limit {
            room = room.min(limit.saturating_sub(held));
        }
        let mut size = (bytes + crate::world::PAD).next_multiple_of(512);
        if self.rounds {
            size = size.next_power_of_two();
        }
        // The largest segment that any settings used here ask for. The pages of virtual ones are up to
        // 20 MiB, and may be one more than the bytes fill.
        let mut need = if size <= MIB {
            2 * MIB
        } else if size < 10 * MIB {
            20 * MIB
        } else {
            size.next_multiple_of(2 * MIB)
        };
        if self.virtual_memory {
            need += 20 * MIB;
        }
        assert!(
            room < need,
            "out of memory for {bytes} bytes with {room} bytes of room on the device"
        );
    }

    /// Bytes that the driver could not have back if all idle memory was returned: the pools in use, and where else live
    /// blocks lie.
    fn in_use(&self, device: u32) -> usize {
        let users = &self.devices[device as usize].users;
        let pools: Vec<MempoolId> = users
            .iter()
            .filter(|(_, users)| **users > 0)
            .map(|(pool, _)| pool_id(*pool))
            .collect();
        let live = self.live.iter().filter(|block| block.device == device);
        let blocks: Vec<(usize, usize)> = live
            .filter(|block| !pools.contains(&pool_id(block.pool)))
            .map(|block| (block.addr, block.size))
            .collect();
        let under = self.driver.inner.under(device, &blocks);
        let reserved = self.device(device).reserved_by_pool().into_iter();
        let reserved = reserved
            .filter(|(id, _)| pools.contains(id))
            .map(|(_, stat)| stat.current() as usize);
        under.values().sum::<usize>() + reserved.sum::<usize>()
    }
}
