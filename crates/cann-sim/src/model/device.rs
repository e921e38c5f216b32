//! One device: how much of its memory is in use, and its state of health.

use std::collections::BTreeSet;

use ascend_rs_sys::ACL_ERROR_RT_MEMORY_ALLOCATION;

use super::error::{Result, fail};
use super::ledger::Ledger;
use super::memory::{GIANT_PAGE, Pages, PlainMemory};

/// A device.
#[derive(Debug)]
pub struct Device {
    /// Bytes of memory it has.
    pub capacity: u64,
    /// Bytes in use by this process, in whole pages.
    pub used: u64,
    /// Most bytes that were ever in use.
    pub peak: u64,
    /// Bytes another process holds.
    pub external: u64,
    /// Free pages of 1 GiB in the set that was put aside.
    pub giant_pages: u64,
    /// Pages of 1 GiB that were put aside, in use or free.
    pub giant_total: u64,
    /// Plain allocations.
    pub memory: PlainMemory,
    /// The stream that the null handle means.
    pub default_stream: u64,
    /// Events that are taken.
    pub events: u32,
    /// True between `aclrtSetDevice` and `aclrtResetDevice`.
    pub active: bool,
    /// Code that every call gets after the device was lost or hit an error.
    pub broken: Option<i32>,
    /// Ranges with uncorrectable errors that are reported and not repaired.
    pub uce: Vec<(u64, u64)>,
    /// Bytes that were not freed when the program reset the device.
    pub taken_back: u64,
    /// Addresses of plain memory that a reset took back and that were neither given
    /// out nor freed since.
    pub reclaimed: BTreeSet<u64>,
    /// Counts.
    pub ledger: Ledger,
}

impl Device {
    /// A healthy device.
    pub fn new(index: u32, capacity: u64, giant_pages: u64) -> Self {
        Device {
            capacity,
            used: 0,
            peak: 0,
            external: 0,
            giant_pages,
            giant_total: giant_pages,
            memory: PlainMemory::new(index),
            default_stream: 0,
            events: 0,
            active: false,
            broken: None,
            uce: Vec::new(),
            taken_back: 0,
            reclaimed: BTreeSet::new(),
            ledger: Ledger::default(),
        }
    }

    /// Bytes that can still be allocated in other pages than those put aside.
    pub fn free(&self) -> u64 {
        self.capacity
            .saturating_sub(self.used)
            .saturating_sub(self.external)
            .saturating_sub(self.giant_pages.saturating_mul(GIANT_PAGE))
    }

    /// Takes whole pages of memory, those of 1 GiB from their set; nothing is taken
    /// when there are too few.
    pub fn charge(&mut self, pages: Pages, len: u64) -> Result<()> {
        if pages == Pages::Giant {
            let Some(rest) = self.giant_pages.checked_sub(len / GIANT_PAGE) else {
                return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "too few pages of 1 GiB");
            };
            self.giant_pages = rest;
        } else if len > self.free() {
            return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "device memory is exhausted");
        }
        self.used += len;
        self.peak = self.peak.max(self.used);
        Ok(())
    }

    /// Gives memory back to where it was taken from.
    pub fn discharge(&mut self, pages: Pages, len: u64) {
        self.used = self.used.saturating_sub(len);
        if pages == Pages::Giant {
            self.giant_pages += len / GIANT_PAGE;
        }
    }
}
