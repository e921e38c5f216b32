//! What rules about how much may be held go by.

use super::large_blocks::LargeBlocks;
use super::target::{Climbing, Needed};

/// How much memory there is, how much was needed, and what is on its way.
#[derive(Default)]
pub(in crate::device) struct Budget {
    /// What this process may reserve, bytes.
    pub limit: Option<usize>,
    /// The same as a share of the device's memory, from the settings, until the device has been asked for that.
    pub share: Option<f64>,
    /// Bytes of the device, as of the last reservation of addresses.
    pub total: usize,
    /// Bytes that threads are asking the driver for right now, beyond `reserved_bytes`.
    pub growing: usize,
    /// Bytes ordered ahead of need and not taken in yet.
    pub ahead: usize,
    /// Bytes that threads are giving back to the driver right now.
    pub leaving: usize,
    /// The driver had no physical memory when it was last asked.
    pub device_full: bool,
    /// Requests for memory that came to nothing, and gave back what they had got.
    pub failed_growths: u64,
    /// How often memory was short, so that the device was waited for.
    pub shortages: u64,
    /// The most that was needed at once, as of the last time memory was mapped.
    pub most: Needed,
    pub climbing: Climbing,
    /// Bytes in pages that moved although the device had more.
    pub moved: usize,
    /// The most that was active on a full device at once, with what was free then but could not move.
    pub most_full: usize,
    /// What pages under large blocks have at the most, bytes, by how large these are; unknown until there are some.
    pub page_by_blocks: Option<usize>,
    /// A look's worth of large blocks was freed before as much was active: what is loaded is cut down to shards, mostly.
    /// Such programs use blocks on several streams, but not before much lies in larger pages.
    pub seems_sharded: bool,
    /// The large blocks there were once the program was taken for loaded.
    pub loaded: Option<LargeBlocks>,
    /// How often what came since then was looked at.
    pub looks_at_changes: usize,
}
