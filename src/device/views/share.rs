//! What another process needs to map a block.

use crate::device::DeviceAllocator;
use crate::driver::PhysicalHandle;

/// The physical memory under a block of a virtual segment.
#[derive(Debug, Clone)]
pub struct PageView {
    /// Bytes in a page.
    pub page_size: usize,
    /// Where the first page begins; at or before the block.
    pub addr: usize,
    /// The pages' handles in address order.
    pub handles: Vec<PhysicalHandle>,
}

impl DeviceAllocator {
    /// The pages under the live block at `addr`; `None` when there is no such block, it is part of a
    /// fixed segment, or it sleeps.
    pub fn pages_under(&self, addr: usize) -> Option<PageView> {
        let state = self.state.look();
        let id = state.live.get(addr, &state.arena)?;
        let block = &state.arena[id];
        // From when it begins to fall asleep the driver may have the handles back.
        if state.sleep.has(state.lists[block.list].pool) {
            return None;
        }
        let pages = state.pages_of(id)?;
        let range = pages.touching(block.addr, block.end());
        Some(PageView {
            page_size: pages.page_size(),
            addr: pages.addr_of(range.start),
            handles: range
                .map(|page| pages.handle(page))
                .collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Settings;
    use crate::driver::fake::FakeDriver;
    use crate::ids::{DeviceId, StreamKey};

    #[test]
    fn pages_that_sleep_are_not_shared() {
        let driver = Arc::new(FakeDriver::new(1 << 30));
        let settings = Settings::parse("expandable_segments:True").expect("valid");
        let device = DeviceAllocator::new(DeviceId(0), driver, settings, 32).expect("device");
        let addr = device.allocate(40 << 20, StreamKey(1)).expect("fits");
        // 40 MiB and 512 bytes in pages of 4 MiB.
        let pages = || Some(device.pages_under(addr)?.handles.len());
        assert_eq!(pages(), Some(11));
        device.sleep(None).expect("sleeps");
        assert_eq!(pages(), None);
        device.wake_up(None).expect("wakes");
        assert_eq!(pages(), Some(11));
    }
}
