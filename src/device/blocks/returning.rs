//! Freed blocks that another stream than their own used last. They are free for that stream; for everybody else once its
//! work is over.

use std::collections::{BTreeSet, HashMap};

use crate::block::Block;
use crate::ids::{BlockId, StreamKey};
use crate::mix::BuildMix;
use crate::page::LastUse;

/// Blocks in state `Returning`, with their last uses.
#[derive(Debug, Default)]
pub(in crate::device) struct Returning {
    uses: HashMap<BlockId, LastUse, BuildMix>,
    /// The same by stream, kind of list (small or not) and size.
    by_size: BTreeSet<(StreamKey, bool, usize, BlockId)>,
}

impl Returning {
    pub fn len(&self) -> usize {
        self.uses.len()
    }

    pub fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }

    /// Whose block it was last.
    pub fn last_use(&self, id: BlockId) -> Option<LastUse> {
        self.uses.get(&id).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = (BlockId, LastUse)> + '_ {
        self.uses.iter().map(|(id, used)| (*id, *used))
    }

    pub fn insert(&mut self, id: BlockId, block: &Block, used: LastUse) {
        self.uses.insert(id, used);
        self.by_size
            .insert((used.stream, block.list.is_small(), block.size, id));
    }

    pub fn remove(&mut self, id: BlockId, block: &Block) -> Option<LastUse> {
        let used = self.uses.remove(&id)?;
        self.by_size
            .remove(&(used.stream, block.list.is_small(), block.size, id));
        Some(used)
    }

    /// The blocks that a stream used last, of `size` bytes or more, the smallest first.
    pub fn of_stream(
        &self,
        stream: StreamKey,
        small: bool,
        size: usize,
    ) -> impl Iterator<Item = BlockId> + '_ {
        let from = (stream, small, size, BlockId(0));
        let upto = (stream, small, usize::MAX, BlockId::NONE);
        self.by_size.range(from..=upto).map(|(_, _, _, id)| *id)
    }

    /// The sizes agree with the blocks'.
    pub fn agrees<'a>(&self, block: impl Fn(BlockId) -> &'a Block) -> bool {
        let known = |(id, used): (&BlockId, &LastUse)| {
            let block = block(*id);
            let key = (used.stream, block.list.is_small(), block.size, *id);
            self.by_size.contains(&key)
        };
        self.by_size.len() == self.uses.len() && self.uses.iter().all(known)
    }
}
