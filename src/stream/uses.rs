//! Streams on which blocks were used besides their own.

use crate::block::{Block, NO_USES};
use crate::driver::StreamToken;

/// One recorded use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// On which stream.
    pub stream: StreamToken,
    /// First recorded during a graph capture: the replay's own order covers it, so no event is needed
    /// once the capture has ended.
    pub captured: bool,
}

/// Most blocks have no uses; those that have own a slot here. Slots keep their capacity, so that
/// recording a stream allocates nothing once warm.
#[derive(Debug, Default)]
pub struct StreamUses {
    slots: Vec<Vec<Use>>,
    vacant: Vec<u32>,
}

impl StreamUses {
    /// Notes that `block` is used on `stream`; once for each stream.
    pub fn add(&mut self, block: &mut Block, stream: StreamToken, captured: bool) {
        if block.uses == NO_USES {
            block.uses = self.vacant.pop().unwrap_or_else(|| {
                self.slots.push(Vec::new());
                (self.slots.len() - 1) as u32
            });
        }
        let slot = &mut self.slots[block.uses as usize];
        match slot.iter_mut().find(|used| used.stream == stream) {
            // A use outside of the capture needs its event, whatever came before or after it.
            Some(used) => used.captured &= captured,
            None => slot.push(Use { stream, captured }),
        }
    }

    /// Forgets the use on `stream`; false when there was none.
    pub fn remove(&mut self, block: &mut Block, stream: StreamToken) -> bool {
        if block.uses == NO_USES {
            return false;
        }
        let slot = &mut self.slots[block.uses as usize];
        let Some(at) = slot.iter().position(|used| used.stream == stream) else {
            return false;
        };
        slot.remove(at);
        if slot.is_empty() {
            self.release(block);
        }
        true
    }

    /// The uses recorded for `block`.
    pub fn of(&self, block: &Block) -> &[Use] {
        if block.uses == NO_USES {
            &[]
        } else {
            &self.slots[block.uses as usize]
        }
    }

    /// Takes the uses of `block` out. Give the vector back with [`Self::recycle`].
    pub fn take(&mut self, block: &mut Block) -> Vec<Use> {
        if block.uses == NO_USES {
            return Vec::new();
        }
        self.vacant.push(block.uses);
        let slot = std::mem::replace(&mut block.uses, NO_USES);
        std::mem::take(&mut self.slots[slot as usize])
    }

    /// Keeps the room of a vector that was taken out, for the next block with uses.
    pub fn recycle(&mut self, mut uses: Vec<Use>) {
        uses.clear();
        if let Some(&slot) = self.vacant.last()
            && self.slots[slot as usize].capacity() == 0
        {
            self.slots[slot as usize] = uses;
        }
    }

    /// Forgets every use of `block`.
    pub fn release(&mut self, block: &mut Block) {
        if block.uses != NO_USES {
            self.slots[block.uses as usize].clear();
            self.vacant.push(block.uses);
            block.uses = NO_USES;
        }
    }

    /// Number of blocks with uses.
    pub fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Whether no block has uses.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
