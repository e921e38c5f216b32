//! What is compared: an allocator with its settings, and a device.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// An allocator, its settings, and whether the device lets a handle be mapped at two addresses.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Configuration {
    /// torch_npu's own allocator, no settings
    StockDefault,
    /// torch_npu's own allocator, expandable_segments:True
    StockExpandable,
    /// npualloc, no settings
    NpuallocDefault,
    /// npualloc, expandable_segments:False
    NpuallocFixed,
    /// npualloc, expandable_segments:True; handles may be mapped at two addresses
    NpuallocExpandableAlias,
    /// npualloc, expandable_segments:True; handles may be mapped at one address only
    NpuallocExpandable,
}

impl Configuration {
    /// All, in the order of the tables.
    pub const ALL: [Self; 6] = [
        Self::StockDefault,
        Self::StockExpandable,
        Self::NpuallocDefault,
        Self::NpuallocFixed,
        Self::NpuallocExpandableAlias,
        Self::NpuallocExpandable,
    ];

    /// As in tables and pictures.
    pub fn name(self) -> &'static str {
        match self {
            Self::StockDefault => "stock default",
            Self::StockExpandable => "stock expandable",
            Self::NpuallocDefault => "npualloc default",
            Self::NpuallocFixed => "npualloc fixed",
            Self::NpuallocExpandableAlias => "npualloc expandable, aliases",
            Self::NpuallocExpandable => "npualloc expandable",
        }
    }

    /// Whether npualloc takes the stock allocator's place.
    pub fn plugin(self) -> bool {
        !matches!(self, Self::StockDefault | Self::StockExpandable)
    }

    /// Value of `PYTORCH_NPU_ALLOC_CONF`.
    pub fn settings(self) -> Option<&'static str> {
        match self {
            Self::StockDefault | Self::NpuallocDefault => None,
            Self::NpuallocFixed => Some("expandable_segments:False"),
            Self::StockExpandable | Self::NpuallocExpandableAlias | Self::NpuallocExpandable => {
                Some("expandable_segments:True")
            }
        }
    }

    /// Whether the device lets a handle be mapped at two addresses.
    pub fn aliases(self) -> bool {
        self != Self::NpuallocExpandable
    }

    /// Whether it was told to use virtual segments.
    pub fn expandable(self) -> bool {
        self.settings() == Some("expandable_segments:True")
    }
}
