//! Which handle backs which page of a reserved range.

use std::ops::Range;

use crate::driver::PhysicalHandle;

/// The pages of one range, from its start.
#[derive(Debug, Clone)]
pub struct PageTable {
    base: usize,
    page_size: usize,
    /// Grows as pages are mapped.
    slots: Vec<Option<PhysicalHandle>>,
    mapped: usize,
}

impl PageTable {
    /// A range without memory. `base` is a multiple of the page size.
    pub fn new(base: usize, page_size: usize) -> Self {
        Self {
            base,
            page_size,
            slots: Vec::new(),
            mapped: 0,
        }
    }

    /// Bytes in a page.
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// Bytes mapped.
    pub fn mapped_bytes(&self) -> usize {
        self.mapped * self.page_size
    }

    /// The address of a page.
    pub fn addr_of(&self, page: usize) -> usize {
        self.base + page * self.page_size
    }

    /// The page that holds an address.
    pub fn page_of(&self, addr: usize) -> usize {
        (addr - self.base) / self.page_size
    }

    /// The pages that touch `[addr, end)`.
    pub fn touching(&self, addr: usize, end: usize) -> Range<usize> {
        self.page_of(addr)..(end - self.base).div_ceil(self.page_size)
    }

    /// The pages that lie entirely in `[addr, end)`.
    pub fn within(&self, addr: usize, end: usize) -> Range<usize> {
        let first = (addr - self.base).div_ceil(self.page_size);
        let last = self.page_of(end);
        first..last.max(first)
    }

    /// Whether a page is mapped.
    pub fn is_mapped(&self, page: usize) -> bool {
        self.slots.get(page).is_some_and(Option::is_some)
    }

    /// What backs a page.
    pub fn handle(&self, page: usize) -> Option<PhysicalHandle> {
        self.slots.get(page).copied().flatten()
    }

    /// Notes that `handle` backs a page, which must be unmapped.
    pub fn set(&mut self, page: usize, handle: PhysicalHandle) {
        if self.slots.len() <= page {
            self.slots.resize(page + 1, None);
        }
        debug_assert!(self.slots[page].is_none());
        self.slots[page] = Some(handle);
        self.mapped += 1;
    }

    /// Notes that nothing backs a page any more.
    pub fn clear(&mut self, page: usize) -> Option<PhysicalHandle> {
        let handle = self.slots.get_mut(page)?.take()?;
        self.mapped -= 1;
        Some(handle)
    }
}
