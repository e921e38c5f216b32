//! What is known of the driver's virtual memory, and the physical memory that backs no address.

use super::probe::Probe;
use crate::page::{PageNumbers, PagePool};

/// The driver's virtual memory.
#[derive(Default)]
pub(in crate::device) struct Paging {
    /// New segments are virtual.
    pub virtual_memory: bool,
    /// Whether they are depends on a try of the driver that is still to be made.
    pub engine_open: bool,
    /// Whether the driver maps memory at all; unknown until it was tried.
    pub maps: Option<bool>,
    /// Whether the driver maps one handle at two addresses; unknown until it was tried.
    pub aliasing: Option<bool>,
    /// What is left of a try that could not be undone.
    pub probe: Option<Probe>,
    /// Physical memory that backs no address.
    pub pages: PagePool,
    /// Numbers of the handles that were ever mapped.
    pub numbers: PageNumbers,
    /// Mappings left behind by pages that moved.
    pub stale: usize,
    /// The driver had no addresses when it was last asked, and has got none back since.
    pub addresses_short: bool,
}

impl Paging {
    /// Bytes of physical memory that serve no range, but for what is being obtained ahead.
    pub fn idle_bytes(&self) -> usize {
        self.pages.bytes() + self.probe.as_ref().map_or(0, Probe::bytes)
    }
}
