//! What a lease is about, and what is said of its blocks.

use super::table::Entry;
use crate::ids::{BlockId, ListId, StreamKey};
use crate::size::{MIN_BLOCK_SIZE, SMALL_SIZE, align_up, kept_size};

/// For what a lease is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Requests on this stream.
    pub stream: StreamKey,
    /// Added to every request before rounding, bytes.
    pub pad: usize,
    /// Blocks are of few sizes: see [`kept_size`].
    pub steps: bool,
    /// A block of the next larger of these sizes does as well.
    pub larger: bool,
    /// The stream's lists: of small requests, of large ones.
    pub lists: [ListId; 2],
    /// Bytes up to which free blocks are its own: of up to [`MOST_STEPPED`](crate::size::MOST_STEPPED), larger.
    pub most: [usize; 2],
}

impl Terms {
    /// Bytes that a request counts for, and those that its block should have.
    #[inline]
    pub fn sizes(&self, bytes: usize) -> (usize, usize) {
        let counted = align_up((bytes + self.pad).max(MIN_BLOCK_SIZE), MIN_BLOCK_SIZE);
        let size = if self.steps {
            kept_size(counted)
        } else {
            counted
        };
        (counted, size)
    }

    /// The list of a block of that size.
    #[inline]
    pub fn list(&self, size: usize) -> ListId {
        self.lists[usize::from(size > SMALL_SIZE)]
    }
}

/// A block that comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returned {
    /// The block.
    pub block: BlockId,
    /// Its size, bytes.
    pub size: usize,
    /// Bytes asked for; 0: it is free.
    pub requested: usize,
    /// See [`Block::slack`](crate::block::Block::slack).
    pub slack: u16,
    /// How often it was given back meanwhile, modulo 2^16.
    pub frees: u16,
}

/// A block that was handed out when a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Former {
    /// The block.
    pub block: BlockId,
    /// As long as this is its generation, it has been handed out all the time.
    pub generation: u16,
}

impl From<Entry> for Returned {
    fn from(entry: Entry) -> Self {
        Self {
            block: entry.block,
            size: entry.size(),
            requested: entry.requested,
            slack: entry.slack,
            frees: entry.frees,
        }
    }
}

/// What becomes of a block that is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It is free.
    Done,
    /// The lease has no such block handed out.
    Unknown,
    /// Nothing yet: it has no room for it, or is to be looked at.
    Full,
}
