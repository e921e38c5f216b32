//! What another process needs to map a block.

use super::DeviceAllocator;
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
    /// The pages under the live block at `addr`; `None` when there is no such block or it is part of a
    /// fixed segment.
    pub fn pages_under(&self, addr: usize) -> Option<PageView> {
        let state = self.state.lock();
        let id = state.live.get(addr, &state.arena)?;
        let block = &state.arena[id];
        let pages = state.pages_of(id)?;
        let range = pages.touching(block.addr, block.end());
        Some(PageView {
            page_size: pages.page_size(),
            addr: pages.addr_of(range.start),
            handles: range.filter_map(|page| pages.handle(page)).collect(),
        })
    }
}
