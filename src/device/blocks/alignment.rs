//! Where in a free block of a virtual segment a large request begins. Pure.

use crate::device::state::State;
use crate::ids::{BlockId, ListId};

/// On a full device blocks of at least this many bytes begin at multiples of nearly their 512th part, so that one that is
/// freed leaves a hole for those that are a little larger. A tensor that grows step by step, the one before being freed
/// after each step, would otherwise find holes that lack a few bytes, and a page would have to move there. Measured on 22
/// recorded programs; smaller blocks, and devices with memory to spare, gain little and are left parts of pages
/// (`docs/experiments-memory.md`, *Where large blocks begin*).
const ROUGHLY_PLACED: usize = 256 << 20;
/// See [`ROUGHLY_PLACED`].
const PARTS: usize = 512;

impl State {
    /// A block that is in no list starts where large ones do, if `size` bytes fit behind: what lies before
    /// becomes free.
    #[inline]
    pub fn cut_to_alignment(&mut self, id: BlockId, list: ListId, size: usize) -> BlockId {
        let block = &self.arena[id];
        let (addr, room) = (block.addr, block.size - size);
        let align = self.settings.base_addr_aligned_size;
        let mut before = up_to_multiple(addr, align);
        if self.budget.device_full && size >= ROUGHLY_PLACED && align.count_ones() <= 1 {
            let rough = up_to_multiple(addr, 1 << (size / PARTS).ilog2());
            if rough <= room {
                before = rough;
            }
        }
        if before > room {
            return id;
        }
        self.leave_front(id, list, before)
    }
}

/// Bytes from an address to the next multiple of `align`; 0 is every address's.
#[inline]
fn up_to_multiple(addr: usize, align: usize) -> usize {
    match align {
        0 => 0,
        _ if align.is_power_of_two() => addr.wrapping_neg() & (align - 1),
        _ => addr.next_multiple_of(align) - addr,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::config::Settings;
    use crate::device::DeviceAllocator;
    use crate::driver::fake::FakeDriver;
    use crate::ids::{DeviceId, StreamKey};

    const MIB: usize = 1 << 20;
    const S0: StreamKey = StreamKey(0);
    const VIRTUAL: &str = "expandable_segments:True";

    fn device(settings: &str) -> DeviceAllocator {
        let driver = Arc::new(FakeDriver::new(2048 * MIB));
        let settings = Settings::parse(settings).expect("valid");
        DeviceAllocator::new(DeviceId(0), driver, settings, 0).expect("device")
    }

    /// Where a block begins behind one of 16 MiB and 4 KiB, in free memory; from where that begins.
    fn offset(settings: &str, full: bool, bytes: usize) -> usize {
        let device = device(settings);
        let whole = device.allocate(1024 * MIB, S0).expect("fits");
        assert!(device.deallocate(whole));
        device.state.lock().budget.device_full = full;
        let sizes = [16 * MIB + 4096, bytes];
        let [first, addr] = sizes.map(|bytes| device.allocate(bytes, S0).expect("fits"));
        device.check_consistency().expect("consistent");
        assert_eq!(first, whole, "both lie there");
        addr - whole
    }

    #[test]
    fn large_blocks_begin_at_rough_multiples_on_a_full_device() {
        let (large, less) = (256 * MIB, 256 * MIB - 512);
        let after = 16 * MIB + 16384;
        let rough = 16 * MIB + MIB / 2;
        assert_eq!(offset(VIRTUAL, true, large), rough);
        // For 1 GiB less 64 MiB the nearest power of two is a MiB.
        assert_eq!(offset(VIRTUAL, true, 960 * MIB), 17 * MIB);
        assert_eq!(offset(VIRTUAL, true, less), after);
        assert_eq!(offset(VIRTUAL, false, large), after);
        // Whatever alignment was asked for is kept to.
        let unaligned = format!("{VIRTUAL},base_addr_aligned_kb:0");
        assert_eq!(offset(&unaligned, true, large), rough);
        let thrice = format!("{VIRTUAL},base_addr_aligned_kb:12");
        assert!(offset(&thrice, true, large) < rough);
    }

    #[test]
    fn a_large_block_begins_nearer_where_there_is_no_room() {
        let device = device(VIRTUAL);
        let sizes = [16 * MIB + 4096, 256 * MIB + 32768, 16 * MIB];
        let [first, hole, _] = sizes.map(|bytes| device.allocate(bytes, S0).expect("fits"));
        assert_eq!(hole, first + 16 * MIB + 16384);
        assert!(device.deallocate(hole));
        device.state.lock().budget.device_full = true;
        assert_eq!(device.allocate(256 * MIB, S0).expect("fits"), hole);
        device.check_consistency().expect("consistent");
    }
}
