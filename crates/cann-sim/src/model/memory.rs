//! Plain device memory: what `aclrtMalloc` gives out, and the addresses of it.

use std::collections::BTreeMap;

use super::address_space::AddressSpace;
use super::cost::PAGE;

/// Bytes the runtime adds to a request, because kernels may read past the end
/// (`aclrtMalloc` rounds up to 32 and adds 32; `aclrtMallocAlign32` only rounds).
pub const PADDING: u64 = 32;

/// Size of a small page.
pub const SMALL_PAGE: u64 = 4 << 10;

/// Requests up to this size use small pages.
pub const SMALL_LIMIT: u64 = 1 << 20;

/// Size of the largest page.
pub const GIANT_PAGE: u64 = 1 << 30;

/// Window of addresses of one device.
pub const WINDOW: u64 = 1 << 40;

/// Where the window of device 0 begins.
pub const WINDOW_BASE: u64 = 0x2000_0000_0000;

/// Part of a window that small pages are in, as long as they fit; the rest is for all others.
const SMALL_PART: u64 = 64 << 30;

/// Pages behind an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// 4 KiB.
    Small,
    /// 2 MiB.
    Huge,
    /// 1 GiB.
    Giant,
}

impl Pages {
    /// Bytes of a page.
    pub fn size(self) -> u64 {
        match self {
            Pages::Small => SMALL_PAGE,
            Pages::Huge => PAGE,
            Pages::Giant => GIANT_PAGE,
        }
    }
}

/// One allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// Bytes the caller asked for.
    pub requested: u64,
    /// Bytes taken from the device.
    pub len: u64,
    /// Pages behind it.
    pub pages: Pages,
    /// Number that no other allocation or mapping ever has.
    pub owner: u64,
    /// True if another process owns the memory and it was imported by key.
    pub imported: bool,
}

impl Allocation {
    /// Bytes that can be read and written: of an import no more than is shared,
    /// though it takes whole pages of addresses.
    pub fn present(&self) -> u64 {
        if self.imported {
            self.requested
        } else {
            self.len
        }
    }
}

/// The plain allocations of one device.
#[derive(Debug)]
pub struct PlainMemory {
    small: AddressSpace,
    large: AddressSpace,
    large_from: u64,
    live: BTreeMap<u64, Allocation>,
}

/// The device whose window of plain addresses this address is in.
pub fn device_of(addr: u64) -> Option<u32> {
    let index = addr.checked_sub(WINDOW_BASE)? / WINDOW;
    (index < 16).then_some(index as u32)
}

impl PlainMemory {
    /// The empty memory of a device.
    pub fn new(device: u32) -> Self {
        let base = WINDOW_BASE + u64::from(device) * WINDOW;
        PlainMemory {
            // The first page stays out of use, so that a window's base is never given out.
            small: AddressSpace::new(base + PAGE, SMALL_PART - PAGE),
            large: AddressSpace::new(base + SMALL_PART, WINDOW - SMALL_PART),
            large_from: base + SMALL_PART,
            live: BTreeMap::new(),
        }
    }

    /// Finds addresses for an allocation whose `len` is a multiple of its page size.
    pub fn place(&mut self, allocation: Allocation) -> Option<u64> {
        let (len, align) = (allocation.len, allocation.pages.size());
        let small = (allocation.pages == Pages::Small).then(|| self.small.take(len, align));
        let addr = small.flatten().or_else(|| self.large.take(len, align))?;
        self.live.insert(addr, allocation);
        Some(addr)
    }

    /// Forgets the allocation that begins at `addr`.
    pub fn remove(&mut self, addr: u64) -> Option<Allocation> {
        let allocation = self.live.remove(&addr)?;
        let space = if addr < self.large_from {
            &mut self.small
        } else {
            &mut self.large
        };
        space.give(addr, allocation.len);
        Some(allocation)
    }

    /// The allocation that begins at `addr`.
    pub fn get(&self, addr: u64) -> Option<&Allocation> {
        self.live.get(&addr)
    }

    /// The allocation that holds `addr`, with its start.
    pub fn find(&self, addr: u64) -> Option<(u64, &Allocation)> {
        let (&start, allocation) = self.live.range(..=addr).next_back()?;
        (addr < start + allocation.len).then_some((start, allocation))
    }

    /// All live allocations in address order.
    pub fn live(&self) -> impl Iterator<Item = (u64, &Allocation)> {
        self.live
            .iter()
            .map(|(&addr, allocation)| (addr, allocation))
    }
}
