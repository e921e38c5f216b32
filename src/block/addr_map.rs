//! Address → live block in one probe: open addressing, linear probing, deletion by shifting back, so
//! there are no tombstones and a lookup never slows down with age.
//!
//! A slot is 8 bytes: the block's name, and 32 bits of its address to tell it from its neighbours in the
//! table. The block itself, which whoever looks it up needs anyway, has the last word.

use super::arena::BlockArena;
use crate::ids::BlockId;
use crate::size::MIN_BLOCK_SIZE;

/// Fibonacci hashing: 2^64 / golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
const MIN_SLOTS: usize = 1024;

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Part of the address, see [`tag_of`].
    tag: u32,
    /// [`BlockId::NONE`] in an empty slot.
    block: BlockId,
}

const EMPTY: Slot = Slot {
    tag: 0,
    block: BlockId::NONE,
};

/// The address in units of 512 bytes, modulo 2^32: the same for two blocks only when they are a multiple
/// of 2 TiB apart.
#[inline]
fn tag_of(addr: usize) -> u32 {
    (addr / MIN_BLOCK_SIZE) as u32
}

/// The live blocks of a device by start address.
#[derive(Debug)]
pub struct AddrMap {
    slots: Box<[Slot]>,
    shift: u32,
    len: usize,
}

impl Default for AddrMap {
    fn default() -> Self {
        Self {
            slots: vec![EMPTY; MIN_SLOTS].into(),
            shift: 64 - MIN_SLOTS.ilog2(),
            len: 0,
        }
    }
}

impl AddrMap {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of bookkeeping held.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        (u64::from(tag).wrapping_mul(MULTIPLIER) >> self.shift) as usize
    }

    /// Adds a block that is not in the map.
    #[inline]
    pub fn insert(&mut self, addr: usize, block: BlockId) {
        // At most five eighths full: probes stay short.
        if self.len * 8 >= self.slots.len() * 5 {
            self.grow();
        }
        let tag = tag_of(addr);
        self.place(Slot { tag, block });
        self.len += 1;
    }

    #[inline]
    fn place(&mut self, slot: Slot) {
        let mut at = self.home(slot.tag);
        let slots = &mut *self.slots;
        let mask = slots.len() - 1;
        while slots[at & mask].block.is_some() {
            at += 1;
        }
        slots[at & mask] = slot;
    }

    #[cold]
    fn grow(&mut self) {
        let slots = self.slots.len() * 2;
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; slots].into());
        self.shift -= 1;
        for slot in old {
            if slot.block.is_some() {
                self.place(slot);
            }
        }
    }

    #[inline]
    fn find(&self, addr: usize, arena: &BlockArena) -> Option<(usize, BlockId)> {
        let tag = tag_of(addr);
        let slots = &*self.slots;
        let mask = slots.len() - 1;
        let mut at = self.home(tag) & mask;
        loop {
            let Slot { tag: found, block } = slots[at & mask];
            if !block.is_some() {
                return None;
            }
            if found == tag && arena[block].addr == addr {
                return Some((at, block));
            }
            at = (at + 1) & mask;
        }
    }

    /// The live block that starts at `addr`.
    #[inline]
    pub fn get(&self, addr: usize, arena: &BlockArena) -> Option<BlockId> {
        self.find(addr, arena).map(|(_, block)| block)
    }

    /// Takes the entry of `addr` out.
    #[inline]
    pub fn remove(&mut self, addr: usize, arena: &BlockArena) -> Option<BlockId> {
        let (mut hole, block) = self.find(addr, arena)?;
        let shift = self.shift;
        let slots = &mut *self.slots;
        let mask = slots.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let slot = slots[at & mask];
            if !slot.block.is_some() {
                break;
            }
            // The entry may move into the hole unless its home lies behind the hole (cyclically).
            let home = (u64::from(slot.tag).wrapping_mul(MULTIPLIER) >> shift) as usize;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                slots[hole & mask] = slot;
                hole = at;
            }
        }
        slots[hole & mask] = EMPTY;
        self.len -= 1;
        Some(block)
    }

    /// Every block.
    pub fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.slots.iter().filter_map(|slot| slot.block.some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ListId, SegmentId};
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn block(arena: &mut BlockArena, addr: usize) -> BlockId {
        arena.insert(addr, 512, SegmentId(0), ListId(0))
    }

    proptest! {
        #[test]
        fn agrees_with_a_hash_map(ops in prop::collection::vec((any::<bool>(), 1usize..600), 1..4000)) {
            let mut arena = BlockArena::default();
            let mut map = AddrMap::default();
            let mut model = HashMap::new();
            // Every third address shares its tag with another one.
            let addr_of = |key: usize| if key % 3 == 0 { (key / 3) * 512 + (1 << 41) } else { key * 512 };
            for (add, key) in ops {
                let addr = addr_of(key);
                if add {
                    let id = block(&mut arena, addr);
                    if model.insert(addr, id).is_some() {
                        map.remove(addr, &arena);
                    }
                    map.insert(addr, id);
                } else {
                    prop_assert_eq!(map.remove(addr, &arena), model.remove(&addr));
                }
                prop_assert_eq!(map.len(), model.len());
            }
            for key in 0..600 {
                let addr = addr_of(key);
                prop_assert_eq!(map.get(addr, &arena), model.get(&addr).copied());
            }
            prop_assert_eq!(map.iter().count(), model.len());
        }
    }

    #[test]
    fn grows_and_keeps_everything() {
        let mut arena = BlockArena::default();
        let mut map = AddrMap::default();
        let ids: Vec<BlockId> = (1..=100_000usize)
            .map(|n| block(&mut arena, n << 21))
            .collect();
        for (n, id) in ids.iter().enumerate() {
            map.insert((n + 1) << 21, *id);
        }
        for (n, id) in ids.iter().enumerate() {
            assert_eq!(map.get((n + 1) << 21, &arena), Some(*id));
        }
        assert_eq!(map.get(3, &arena), None);
        assert_eq!(map.get((1 << 21) + 8, &arena), None);
        assert_eq!(map.get(0, &arena), None);
    }
}
