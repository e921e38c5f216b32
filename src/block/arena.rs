//! The arena of blocks of one device.

use super::lazy_array::{LazyArray, Zeroable};
use super::marks::Marks;
use super::prefetch::prefetch;
use crate::ids::{BlockId, ListId, SegmentId};
use crate::size::MIN_BLOCK_SIZE;

/// What a block is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockState {
    /// A slot of the arena that holds no block; 0, for arenas begin zeroed.
    Vacant = 0,
    /// In the free index of its list.
    Free,
    /// Handed out; in the address map.
    Live,
    /// Given back by the client, but streams may still use it: waits for events.
    Pending,
    /// Part of a virtual segment that no memory backs.
    Unmapped,
    /// Part of a virtual segment whose mappings a thread is changing with the lock released.
    Busy,
    /// Freed by another stream than its list's, whose last use may not be over.
    Returning,
    /// Free, but kept as it is for a request of its size: see [`QuickLists`](super::quick::QuickLists).
    Kept,
    /// Leased to a thread, which hands it out and takes it back by itself: see [`Lease`](crate::lease::Lease).
    Leased,
}

/// A contiguous part of a segment. One cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub struct Block {
    /// Start address.
    pub addr: usize,
    /// Bytes; a multiple of 512.
    pub size: usize,
    /// Bytes the client asked for; 0 unless live or pending.
    pub requested: usize,
    /// Left neighbour in the segment.
    pub prev: BlockId,
    /// Right neighbour in the segment.
    pub next: BlockId,
    /// Previous block of the same size in the free index.
    pub free_prev: BlockId,
    /// Next block of the same size in the free index; next vacant slot when vacant.
    pub free_next: BlockId,
    /// The segment this is a part of.
    pub segment: SegmentId,
    /// The free index this returns to.
    pub list: ListId,
    /// Slot in the table of stream uses; `u32::MAX` = used on its own stream only.
    pub uses: u32,
    /// Events that must complete before the block may be reused: one for each stream at the most, of which no driver
    /// has so many.
    pub events: u16,
    /// Of a live or waiting block, bytes at its end that are not the client's and are not counted, in units of 512:
    /// see [`kept_size`](crate::size::kept_size). Of others it means nothing.
    pub slack: u16,
    /// The device's search clock when it became free: what garbage collection takes for age.
    pub free_since: u32,
    /// Changes whenever the block is given back for good: tells a handle of a former tenant apart.
    pub generation: u16,
    /// What the block is doing.
    pub state: BlockState,
    /// [`OVERSIZE`], [`DAMAGED`], [`CONTEXT`] and [`GUEST`].
    pub flags: u8,
}

impl Block {
    /// One past the last byte.
    #[inline]
    pub fn end(&self) -> usize {
        self.addr + self.size
    }

    /// Bytes of a live or waiting block that count as allocated.
    #[inline]
    pub fn counted(&self) -> usize {
        self.size - usize::from(self.slack) * MIN_BLOCK_SIZE
    }

    /// Live, and a free has nothing to do but to keep or merge it.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.state == BlockState::Live && self.flags == 0 && self.uses == NO_USES
    }

    /// Whether the block is only a part of its segment.
    #[inline]
    pub fn is_split(&self) -> bool {
        self.prev.is_some() || self.next.is_some()
    }
}

/// At least `max_split_size` when it was handed out (counted in `oversize_allocations`).
pub const OVERSIZE: u8 = 1;
/// Overlaps memory with an uncorrectable error; cleared when the block is handed out again.
pub const DAMAGED: u8 = 2;

/// The client's context of its allocation is kept.
pub const CONTEXT: u8 = 4;
/// [`Block::flags`]: handed out to another stream than its list's.
pub const GUEST: u8 = 8;

/// No stream uses.
pub const NO_USES: u32 = u32::MAX;

// SAFETY: every field is a number or an array index, but for the state, which has a variant of value 0.
#[allow(unsafe_code)]
unsafe impl Zeroable for Block {}

/// Slots at first: an eighth of what comes next.
const MIN_SLOTS: usize = 1 << 13;

/// Blocks by id. Slots are reused; the arena never shrinks, so that an id in use stays valid.
///
/// The last slot of the array is never used: [`BlockId::NONE`] leads there, and so finds a vacant block
/// whose links may be written to.
#[derive(Debug)]
pub struct BlockArena {
    blocks: LazyArray<Block>,
    /// Of as many blocks.
    pub marks: Marks,
    /// Slots used so far.
    used: usize,
    vacant: BlockId,
    len: usize,
}

impl Default for BlockArena {
    fn default() -> Self {
        Self {
            blocks: LazyArray::new(MIN_SLOTS),
            marks: Marks::new(MIN_SLOTS),
            used: 0,
            vacant: BlockId::NONE,
            len: 0,
        }
    }
}

impl BlockArena {
    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of bookkeeping held.
    pub fn heap_bytes(&self) -> usize {
        self.used * (size_of::<Block>() + Marks::BYTES)
    }

    /// Adds a block without neighbours, in state `Pending` (in no index yet).
    #[inline]
    pub fn insert(
        &mut self,
        addr: usize,
        size: usize,
        segment: SegmentId,
        list: ListId,
    ) -> BlockId {
        let block = Block {
            addr,
            size,
            requested: 0,
            prev: BlockId::NONE,
            next: BlockId::NONE,
            free_prev: BlockId::NONE,
            free_next: BlockId::NONE,
            segment,
            list,
            uses: NO_USES,
            events: 0,
            slack: 0,
            free_since: 0,
            generation: 0,
            state: BlockState::Pending,
            flags: 0,
        };
        let id = self.take_vacant();
        let slot = self.blocks.at_mut(id.index());
        *slot = Block {
            generation: slot.generation,
            ..block
        };
        id
    }

    /// Takes a vacant slot, whose fields but `uses` and the flags are as a block without request and events
    /// has them.
    #[inline]
    fn take_vacant(&mut self) -> BlockId {
        if !self.vacant.is_some() {
            self.make_vacant();
        }
        let id = self.vacant;
        self.vacant = self.blocks.at(id.index()).free_next;
        self.len += 1;
        id
    }

    /// Adds a vacant slot, and room for eight times as many slots where there is none: what is not used
    /// takes no memory.
    #[cold]
    #[inline(never)]
    fn make_vacant(&mut self) {
        if self.used + 1 == self.blocks.len() {
            let slots = self.blocks.len() * 8;
            (self.blocks, self.marks) =
                (self.blocks.grown(slots, self.used), self.marks.grown(slots));
        }
        let id = BlockId(self.used as u32);
        self.used += 1;
        let slot = self.blocks.at_mut(id.index());
        (slot.uses, slot.free_next) = (NO_USES, BlockId::NONE);
        self.vacant = id;
    }

    /// Removes a block; its neighbours must no longer link to it.
    #[inline]
    pub fn remove(&mut self, id: BlockId) {
        let vacant = self.vacant;
        let slot = self.blocks.at_mut(id.index());
        debug_assert_ne!(slot.state, BlockState::Vacant);
        slot.state = BlockState::Vacant;
        (slot.requested, slot.uses, slot.events) = (0, NO_USES, 0);
        slot.free_next = vacant;
        self.vacant = id;
        self.len -= 1;
    }

    /// Vacant slots are used again from the lowest on, so that blocks made next lie close together. Looks at every slot
    /// ever used.
    pub fn tidy(&mut self) {
        let mut lowest = BlockId::NONE;
        for index in (0..self.used).rev() {
            let slot = self.blocks.at_mut(index);
            if slot.state == BlockState::Vacant {
                slot.free_next = lowest;
                lowest = BlockId(index as u32);
            }
        }
        self.vacant = lowest;
    }

    /// Splits the first `size` bytes off `id`: the returned block is the front part and takes the
    /// place of `id`'s left edge; `id` keeps the rest. Neither may be in a free index.
    #[inline]
    pub fn split_front(&mut self, id: BlockId, size: usize) -> BlockId {
        let front = self.take_vacant();
        let blocks = &mut self.blocks;
        let rest = blocks.at_mut(id.index());
        debug_assert!(size < rest.size);
        let (addr, segment, list, prev) = (rest.addr, rest.segment, rest.list, rest.prev);
        rest.prev = front;
        rest.addr = addr + size;
        rest.size -= size;
        blocks.at_mut(prev.index()).next = front;
        let block = blocks.at_mut(front.index());
        *block = Block {
            addr,
            size,
            requested: 0,
            prev,
            next: id,
            free_prev: BlockId::NONE,
            free_next: BlockId::NONE,
            segment,
            list,
            uses: NO_USES,
            events: 0,
            slack: 0,
            free_since: 0,
            generation: block.generation,
            state: BlockState::Pending,
            flags: 0,
        };
        front
    }

    /// Splits `id` so that it keeps its first `size` bytes; the returned block is the rest. Neither may
    /// be in a free index.
    #[inline]
    pub fn split_back(&mut self, id: BlockId, size: usize) -> BlockId {
        let back = self.take_vacant();
        let blocks = &mut self.blocks;
        let front = blocks.at_mut(id.index());
        debug_assert!(size < front.size);
        let (addr, rest) = (front.addr + size, front.size - size);
        let (segment, list, next) = (front.segment, front.list, front.next);
        front.size = size;
        front.next = back;
        blocks.at_mut(next.index()).prev = back;
        let block = blocks.at_mut(back.index());
        debug_assert_eq!((block.requested, block.uses, block.events), (0, NO_USES, 0));
        block.addr = addr;
        block.size = rest;
        block.prev = id;
        block.next = next;
        block.segment = segment;
        block.list = list;
        block.state = BlockState::Pending;
        block.flags = 0;
        back
    }

    /// Asks the processor for the line of a block that will be needed soon.
    #[inline]
    pub fn prefetch(&self, id: BlockId) {
        prefetch(std::ptr::from_ref(self.blocks.at(id.index())).addr());
    }

    /// Merges `right` into `left`, its left neighbour. Neither may be in a free index.
    #[inline]
    pub fn merge_right(&mut self, left: BlockId, right: BlockId) {
        let blocks = &mut self.blocks;
        let gone = blocks.at_mut(right.index());
        debug_assert_ne!(gone.state, BlockState::Vacant);
        debug_assert_eq!((gone.requested, gone.uses, gone.events), (0, NO_USES, 0));
        let (addr, size, next) = (gone.addr, gone.size, gone.next);
        gone.state = BlockState::Vacant;
        gone.free_next = self.vacant;
        self.vacant = right;
        self.len -= 1;
        let block = blocks.at_mut(left.index());
        debug_assert_eq!(block.addr + block.size, addr);
        block.size += size;
        block.next = next;
        blocks.at_mut(next.index()).prev = left;
    }

    /// The size of a block that is free; `None` for any other, and for [`BlockId::NONE`].
    #[inline]
    pub fn free_size(&self, id: BlockId) -> Option<usize> {
        let block = self.blocks.at(id.index());
        (block.state == BlockState::Free).then_some(block.size)
    }

    /// Whether no memory backs a block; false for [`BlockId::NONE`].
    #[inline]
    pub fn is_unmapped(&self, id: BlockId) -> bool {
        self.blocks.at(id.index()).state == BlockState::Unmapped
    }

    /// Whether a block is free and holds `[addr, addr + size)`.
    pub fn holds_free(&self, id: BlockId, addr: usize, size: usize) -> bool {
        let block = &self[id];
        block.state == BlockState::Free && block.addr <= addr && addr + size <= block.end()
    }

    /// The block, if there is one of this id.
    pub fn get(&self, id: BlockId) -> Option<&Block> {
        self.blocks
            .head(self.used)
            .get(id.index())
            .filter(|block| block.state != BlockState::Vacant)
    }

    /// Every block, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.blocks
            .head(self.used)
            .iter()
            .enumerate()
            .filter(|(_, block)| block.state != BlockState::Vacant)
            .map(|(index, block)| (BlockId(index as u32), block))
    }
}

impl std::ops::Index<BlockId> for BlockArena {
    type Output = Block;

    #[inline]
    fn index(&self, id: BlockId) -> &Block {
        self.blocks.at(id.index())
    }
}

impl std::ops::IndexMut<BlockId> for BlockArena {
    #[inline]
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        self.blocks.at_mut(id.index())
    }
}

#[cfg(test)]
mod tests;
