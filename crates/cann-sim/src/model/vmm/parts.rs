//! What virtual memory is made of: handles, mappings, reservations.

use crate::model::memory::Pages;

/// Where the pages of a handle lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On a device.
    Device(u32),
    /// In host memory.
    Host,
}

impl Place {
    /// The devices that may touch a mapping of pages here without being granted it:
    /// the one that has them, or, if the host has, all.
    pub(super) fn access(self) -> u16 {
        match self {
            Place::Device(device) => 1 << device,
            Place::Host => u16::MAX,
        }
    }
}

/// A physical handle.
#[derive(Debug, Clone)]
pub struct Physical {
    /// Where its pages lie.
    pub place: Place,
    /// Bytes.
    pub len: u64,
    /// Its pages.
    pub pages: Pages,
    /// `aclrtMemAttr` it was made with.
    pub attr: u32,
    /// Addresses it is mapped at.
    pub mapped: Vec<u64>,
    /// References by the owner: 1, more after `aclrtMemRetainAllocationHandle`,
    /// 0 when only mappings keep it.
    pub references: u32,
    /// Number it is shared under, once exported.
    pub exported: Option<u64>,
    /// True if another process owns the pages.
    pub imported: bool,
}

/// A mapping of a whole handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// Bytes.
    pub len: u64,
    /// The handle.
    pub handle: u64,
    /// Where the pages lie.
    pub place: Place,
    /// Number that no other allocation or mapping ever has.
    pub owner: u64,
    /// The devices that may touch it, a bit for each; none until access is granted
    /// to a mapping made without.
    pub access: u16,
}

/// A reserved range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// Bytes.
    pub len: u64,
    /// Bytes taken from the window.
    pub(super) taken: u64,
    /// Number of mappings inside it.
    pub mappings: u32,
    /// What all mappings have in common: the place, settled by the first until the range is released, and the origin
    /// of those there are.
    pub(super) bound: Option<(Place, bool)>,
}

/// What became of a handle's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Released {
    /// Where they lay.
    pub place: Place,
    /// Bytes.
    pub len: u64,
    /// Their size.
    pub pages: Pages,
    /// True if another process owns them.
    pub imported: bool,
    /// Number they were shared under.
    pub exported: Option<u64>,
    /// The handle.
    pub handle: u64,
}
