//! What requests are served from without a look at free lists, and what of frees is late.

use super::bounce::Bounce;
use super::freeing::LastFreed;
use super::unread::{MANY, Unread};
use crate::block::{Lookups, QuickLists, Returns};
use crate::ids::BlockId;

/// Blocks that are kept or whose free is not finished.
pub(in crate::device) struct Cache {
    /// The block whose free is not finished; always finished while a guard of the lock is held.
    pub last_freed: LastFreed,
    /// The blocks freed after that one without a look at them; none while a guard of the lock is held. Their state is
    /// `Live` still, they are in no list, their entries in the address map are still there, and of all statistics only
    /// the number of allocations has counted them as free.
    pub unread: Unread,
    /// The address that was handed out last while a block was unread.
    pub newest: usize,
    /// Blocks are kept, and there are many, so that live ones are marked.
    pub marking: bool,
    /// Blocks from which on there are many: [`MANY`].
    pub many: usize,
    /// Freed blocks that are kept as they are; none while a guard of the lock is held, unless that was taken by
    /// [`Mutex::lock_keeping`]. Their state is `Kept`, their entries are still in the address map, and all
    /// statistics have counted them as free.
    ///
    /// [`Mutex::lock_keeping`]: crate::sync::Mutex::lock_keeping
    pub quick: QuickLists,
    /// Sizes that come back: requests of others get blocks of their own size.
    pub returns: Returns,
    /// Where blocks are kept and few, the ones found at addresses of late.
    pub lookups: Lookups,
    /// The ticks when room was last made for other small blocks, and for large ones.
    pub room_made: [u64; 2],
    /// The block that was last handed out right after it was freed, as it lay.
    pub returned: BlockId,
    /// Never there while a guard of the lock is held.
    pub bounce: Bounce,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            last_freed: LastFreed::NONE,
            unread: Unread::default(),
            newest: 0,
            marking: false,
            many: MANY,
            quick: QuickLists::default(),
            returns: Returns::default(),
            lookups: Lookups::default(),
            room_made: [0; 2],
            returned: BlockId::NONE,
            bounce: Bounce::NONE,
        }
    }
}
