//! The arena of blocks of one device.

use crate::ids::{BlockId, ListId, SegmentId};

/// What a block is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockState {
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
    /// A slot of the arena that holds no block.
    Vacant,
}

/// A contiguous part of a segment. One cache line.
#[derive(Debug, Clone)]
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
    /// Events that must complete before the block may be reused.
    pub events: u32,
    /// The device's search clock when it became free: what garbage collection takes for age.
    pub free_since: u32,
    /// Changes whenever the block is given back for good: tells a handle of a former tenant apart.
    pub generation: u16,
    /// What the block is doing.
    pub state: BlockState,
    /// [`OVERSIZE`] and [`DAMAGED`].
    pub flags: u8,
}

impl Block {
    /// One past the last byte.
    #[inline]
    pub fn end(&self) -> usize {
        self.addr + self.size
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

/// No stream uses.
pub const NO_USES: u32 = u32::MAX;

/// Blocks by id. Slots are reused; the arena never shrinks, so that an id in use stays valid.
#[derive(Debug)]
pub struct BlockArena {
    blocks: Vec<Block>,
    vacant: BlockId,
    len: usize,
}

impl Default for BlockArena {
    fn default() -> Self {
        Self {
            blocks: Vec::new(),
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
        self.blocks.capacity() * size_of::<Block>()
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
            free_since: 0,
            generation: 0,
            state: BlockState::Pending,
            flags: 0,
        };
        self.len += 1;
        if let Some(id) = self.vacant.some() {
            let slot = &mut self.blocks[id.index()];
            self.vacant = slot.free_next;
            *slot = Block {
                generation: slot.generation,
                ..block
            };
            id
        } else {
            self.push(block)
        }
    }

    /// Grows by an eighth, not to twice the size: slots are counted as bookkeeping for live blocks.
    #[cold]
    fn push(&mut self, block: Block) -> BlockId {
        if self.blocks.len() == self.blocks.capacity() {
            self.blocks.reserve_exact((self.blocks.len() / 8).max(256));
        }
        self.blocks.push(block);
        BlockId((self.blocks.len() - 1) as u32)
    }

    /// Removes a block; its neighbours must no longer link to it.
    #[inline]
    pub fn remove(&mut self, id: BlockId) {
        let vacant = self.vacant;
        let slot = &mut self.blocks[id.index()];
        debug_assert_ne!(slot.state, BlockState::Vacant);
        slot.state = BlockState::Vacant;
        (slot.requested, slot.uses, slot.events) = (0, NO_USES, 0);
        slot.free_next = vacant;
        self.vacant = id;
        self.len -= 1;
    }

    /// Splits the first `size` bytes off `id`: the returned block is the front part and takes the
    /// place of `id`'s left edge; `id` keeps the rest. Neither may be in a free index.
    #[inline]
    pub fn split_front(&mut self, id: BlockId, size: usize) -> BlockId {
        if !self.vacant.is_some() {
            self.make_vacant();
        }
        let front = self.vacant;
        self.len += 1;
        // Through one slice: the compiler need not expect the blocks to move.
        let blocks = self.blocks.as_mut_slice();
        let rest = &mut blocks[id.index()];
        debug_assert!(size < rest.size);
        let (addr, segment, list, prev) = (rest.addr, rest.segment, rest.list, rest.prev);
        rest.prev = front;
        rest.addr = addr + size;
        rest.size -= size;
        if let Some(prev) = prev.some() {
            blocks[prev.index()].next = front;
        }
        let block = &mut blocks[front.index()];
        self.vacant = block.free_next;
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
        if !self.vacant.is_some() {
            self.make_vacant();
        }
        let back = self.vacant;
        self.len += 1;
        // Through one slice: the compiler need not expect the blocks to move.
        let blocks = self.blocks.as_mut_slice();
        let front = &mut blocks[id.index()];
        debug_assert!(size < front.size);
        let (addr, rest) = (front.addr + size, front.size - size);
        let (segment, list, next) = (front.segment, front.list, front.next);
        front.size = size;
        front.next = back;
        if let Some(next) = next.some() {
            blocks[next.index()].prev = back;
        }
        // A vacant slot has no request, no uses and no events.
        let block = &mut blocks[back.index()];
        self.vacant = block.free_next;
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
    #[allow(unsafe_code)]
    pub fn prefetch(&self, id: BlockId) {
        #[cfg(target_arch = "x86_64")]
        if let Some(block) = self.blocks.get(id.index()) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a hint; SSE is part of every x86-64.
            unsafe { _mm_prefetch(std::ptr::from_ref(block).cast(), _MM_HINT_T0) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = id;
    }

    /// Adds a vacant slot.
    #[cold]
    fn make_vacant(&mut self) {
        let id = self.insert(0, 0, SegmentId::NONE, ListId::NONE);
        self.remove(id);
    }

    /// Merges `right` into `left`, its left neighbour. Neither may be in a free index.
    #[inline]
    pub fn merge_right(&mut self, left: BlockId, right: BlockId) {
        let blocks = self.blocks.as_mut_slice();
        let gone = &mut blocks[right.index()];
        debug_assert_ne!(gone.state, BlockState::Vacant);
        debug_assert_eq!((gone.requested, gone.uses, gone.events), (0, NO_USES, 0));
        let (addr, size, next) = (gone.addr, gone.size, gone.next);
        gone.state = BlockState::Vacant;
        gone.free_next = self.vacant;
        self.vacant = right;
        self.len -= 1;
        let block = &mut blocks[left.index()];
        debug_assert_eq!(block.addr + block.size, addr);
        block.size += size;
        block.next = next;
        if let Some(next) = next.some() {
            blocks[next.index()].prev = left;
        }
    }

    /// The size of a block that is free; `None` for any other, and for [`BlockId::NONE`].
    #[inline]
    pub fn free_size(&self, id: BlockId) -> Option<usize> {
        let block = self.blocks.get(id.index())?;
        (block.state == BlockState::Free).then_some(block.size)
    }

    /// Whether no memory backs a block; false for [`BlockId::NONE`].
    #[inline]
    pub fn is_unmapped(&self, id: BlockId) -> bool {
        let block = self.blocks.get(id.index());
        block.is_some_and(|block| block.state == BlockState::Unmapped)
    }

    /// The block, if there is one of this id.
    pub fn get(&self, id: BlockId) -> Option<&Block> {
        self.blocks
            .get(id.index())
            .filter(|block| block.state != BlockState::Vacant)
    }

    /// Every block, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.blocks
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
        &self.blocks[id.index()]
    }
}

impl std::ops::IndexMut<BlockId> for BlockArena {
    #[inline]
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_fills_one_cache_line() {
        assert!(size_of::<Block>() <= 64, "{}", size_of::<Block>());
    }

    #[test]
    fn split_and_merge_restore_the_block() {
        let mut arena = BlockArena::default();
        let id = arena.insert(0x1000, 4096, SegmentId(0), ListId(0));
        let front = arena.split_front(id, 1024);
        assert_eq!((arena[front].addr, arena[front].size), (0x1000, 1024));
        assert_eq!((arena[id].addr, arena[id].size), (0x1400, 3072));
        assert_eq!((arena[front].next, arena[id].prev), (id, front));
        arena.merge_right(front, id);
        assert_eq!((arena[front].addr, arena[front].size), (0x1000, 4096));
        assert!(!arena[front].is_split());
        assert_eq!(arena.len(), 1);
        // The slot is reused.
        assert_eq!(arena.insert(0, 512, SegmentId(0), ListId(0)), id);
    }
}
