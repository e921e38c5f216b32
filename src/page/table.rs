//! Which handle backs which page of a reserved range.

use std::ops::Range;

use crate::driver::PhysicalHandle;

/// A mapping that was left behind when its page moved to another address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale {
    /// What it still leads to.
    pub handle: PhysicalHandle,
    /// The handle's number.
    pub number: u32,
    /// When memory at this address was last freed, on the device's clock.
    pub tick: u64,
}

/// What is at a page's address.
#[derive(Debug, Clone, Copy)]
enum Slot {
    Empty,
    /// Memory that belongs here.
    Backed(PhysicalHandle, u32),
    /// Memory that belongs elsewhere by now: no block may use it.
    Stale(Stale),
    /// No memory for now, though it belongs to blocks in use.
    Asleep,
}

/// The pages of one range, from its start.
#[derive(Debug, Clone)]
pub struct PageTable {
    base: usize,
    page_size: usize,
    /// Grows as pages are mapped.
    slots: Vec<Slot>,
    mapped: usize,
    stale: usize,
    asleep: usize,
}

impl PageTable {
    /// A range without memory. `base` is a multiple of the page size.
    pub fn new(base: usize, page_size: usize) -> Self {
        Self {
            base,
            page_size,
            slots: Vec::new(),
            mapped: 0,
            stale: 0,
            asleep: 0,
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

    /// Whether memory belongs to a page, if only once it wakes.
    pub fn is_mapped(&self, page: usize) -> bool {
        matches!(self.slots.get(page), Some(Slot::Backed(..) | Slot::Asleep))
    }

    /// Whether memory belongs to a page, and the first page after it of which the opposite is true.
    pub fn alike_from(&self, page: usize) -> (bool, Option<usize>) {
        let mapped = self.is_mapped(page);
        // No memory belongs to what was never touched.
        let end = self.touched();
        let change = (page + 1..end).find(|&page| self.is_mapped(page) != mapped);
        (mapped, change.or(mapped.then_some(end)))
    }

    /// What backs a page.
    pub fn handle(&self, page: usize) -> Option<PhysicalHandle> {
        match self.slots.get(page) {
            Some(Slot::Backed(handle, _)) => Some(*handle),
            _ => None,
        }
    }

    /// The number of what backs a page.
    #[inline]
    pub fn number(&self, page: usize) -> Option<u32> {
        match self.slots.get(page) {
            Some(Slot::Backed(_, number)) => Some(*number),
            _ => None,
        }
    }

    /// The mapping left behind at a page.
    pub fn stale(&self, page: usize) -> Option<Stale> {
        match self.slots.get(page) {
            Some(Slot::Stale(stale)) => Some(*stale),
            _ => None,
        }
    }

    /// Number of mappings left behind.
    pub fn stale_count(&self) -> usize {
        self.stale
    }

    /// The mappings left behind, by page.
    pub fn stale_pages(&self) -> impl Iterator<Item = (usize, Stale)> + '_ {
        (0..self.slots.len()).filter_map(|page| Some((page, self.stale(page)?)))
    }

    /// The mappings left behind count as used until `tick`.
    pub fn stale_used_at(&mut self, tick: u64) {
        for slot in &mut self.slots {
            if let Slot::Stale(stale) = slot {
                stale.tick = tick;
            }
        }
    }

    /// Notes that `handle`, of this number, backs a page, at which nothing is mapped.
    pub fn set(&mut self, page: usize, handle: PhysicalHandle, number: u32) {
        if self.slots.len() <= page {
            self.slots.resize(page + 1, Slot::Empty);
        }
        debug_assert!(matches!(self.slots[page], Slot::Empty));
        self.slots[page] = Slot::Backed(handle, number);
        self.mapped += 1;
    }

    /// Notes that nothing backs a page any more, nor is mapped there.
    pub fn clear(&mut self, page: usize) -> Option<PhysicalHandle> {
        let handle = self.handle(page)?;
        self.slots[page] = Slot::Empty;
        self.mapped -= 1;
        Some(handle)
    }

    /// Notes that a page's memory, freed at `tick`, belongs elsewhere from now on; it stays mapped.
    pub fn leave(&mut self, page: usize, tick: u64) -> Option<PhysicalHandle> {
        let (handle, number) = (self.handle(page)?, self.number(page)?);
        self.slots[page] = Slot::Stale(Stale {
            handle,
            number,
            tick,
        });
        self.mapped -= 1;
        self.stale += 1;
        Some(handle)
    }

    /// Notes that the memory a left mapping leads to belongs here again.
    pub fn revive(&mut self, page: usize) -> Option<Stale> {
        let stale = self.stale(page)?;
        self.slots[page] = Slot::Backed(stale.handle, stale.number);
        self.stale -= 1;
        self.mapped += 1;
        Some(stale)
    }

    /// Notes that a left mapping was unmapped.
    pub fn forget(&mut self, page: usize) -> Option<Stale> {
        let stale = self.stale(page)?;
        self.slots[page] = Slot::Empty;
        self.stale -= 1;
        Some(stale)
    }

    /// Notes that a page lost its memory for now.
    pub fn doze(&mut self, page: usize) -> Option<PhysicalHandle> {
        let handle = self.handle(page)?;
        self.slots[page] = Slot::Asleep;
        self.asleep += 1;
        Some(handle)
    }

    /// Notes that `handle`, of this number, backs a page that slept.
    pub fn wake(&mut self, page: usize, handle: PhysicalHandle, number: u32) {
        if self.is_asleep(page) {
            self.slots[page] = Slot::Backed(handle, number);
            self.asleep -= 1;
        }
    }

    /// Notes that a page that slept belongs to nobody any more.
    pub fn forget_asleep(&mut self, page: usize) {
        if self.is_asleep(page) {
            self.slots[page] = Slot::Empty;
            self.asleep -= 1;
            self.mapped -= 1;
        }
    }

    /// Whether a page sleeps.
    pub fn is_asleep(&self, page: usize) -> bool {
        matches!(self.slots.get(page), Some(Slot::Asleep))
    }

    /// Number of pages that sleep.
    pub fn asleep(&self) -> usize {
        self.asleep
    }

    /// Whether what is counted equals a recount.
    pub fn counts_agree(&self) -> bool {
        let count = |is: fn(&Slot) -> bool| self.slots.iter().filter(|slot| is(slot)).count();
        let asleep = count(|slot| matches!(slot, Slot::Asleep));
        let backed = count(|slot| matches!(slot, Slot::Backed(..)));
        let stale = count(|slot| matches!(slot, Slot::Stale(_)));
        (self.mapped, self.stale, self.asleep) == (backed + asleep, stale, asleep)
    }

    /// Pages from the start that were ever mapped.
    pub fn touched(&self) -> usize {
        self.slots.len()
    }
}
