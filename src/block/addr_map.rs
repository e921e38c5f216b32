//! Address → live block in one probe: open addressing, linear probing, deletion by shifting back, so
//! there are no tombstones and a lookup never slows down with age.

use crate::ids::BlockId;

/// Fibonacci hashing: 2^64 / golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
const MIN_SLOTS: usize = 1024;

#[derive(Debug, Clone, Copy)]
struct Slot {
    addr: usize,
    block: BlockId,
}

const EMPTY: Slot = Slot {
    addr: 0,
    block: BlockId::NONE,
};

/// The live blocks of a device by start address (never 0).
#[derive(Debug)]
pub struct AddrMap {
    slots: Vec<Slot>,
    shift: u32,
    len: usize,
}

impl Default for AddrMap {
    fn default() -> Self {
        Self {
            slots: vec![EMPTY; MIN_SLOTS],
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
        self.slots.capacity() * size_of::<Slot>()
    }

    #[inline]
    fn home(&self, addr: usize) -> usize {
        // Addresses are multiples of 512 as a rule; the multiplication spreads the upper bits.
        ((addr as u64 >> 9).wrapping_mul(MULTIPLIER) >> self.shift) as usize
    }

    /// Adds an address that is not in the map.
    #[inline]
    pub fn insert(&mut self, addr: usize, block: BlockId) {
        debug_assert_ne!(addr, 0);
        if self.len * 4 >= self.slots.len() * 3 {
            self.grow();
        }
        self.place(Slot { addr, block });
        self.len += 1;
    }

    #[inline]
    fn place(&mut self, slot: Slot) {
        let mask = self.slots.len() - 1;
        let mut at = self.home(slot.addr);
        while self.slots[at].addr != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }

    #[cold]
    fn grow(&mut self) {
        let slots = self.slots.len() * 2;
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; slots]);
        self.shift -= 1;
        for slot in old {
            if slot.addr != 0 {
                self.place(slot);
            }
        }
    }

    #[inline]
    fn find(&self, addr: usize) -> Option<usize> {
        if addr == 0 {
            return None;
        }
        let mask = self.slots.len() - 1;
        let mut at = self.home(addr);
        loop {
            let found = self.slots[at].addr;
            if found == addr {
                return Some(at);
            }
            if found == 0 {
                return None;
            }
            at = (at + 1) & mask;
        }
    }

    /// The live block that starts at `addr`.
    #[inline]
    pub fn get(&self, addr: usize) -> Option<BlockId> {
        self.find(addr).map(|at| self.slots[at].block)
    }

    /// Takes the entry of `addr` out.
    #[inline]
    pub fn remove(&mut self, addr: usize) -> Option<BlockId> {
        let mut hole = self.find(addr)?;
        let block = self.slots[hole].block;
        let mask = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot.addr == 0 {
                break;
            }
            // The entry may move into the hole unless its home lies behind the hole (cyclically).
            let home = self.home(slot.addr);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = EMPTY;
        self.len -= 1;
        Some(block)
    }

    /// Every entry.
    pub fn iter(&self) -> impl Iterator<Item = (usize, BlockId)> + '_ {
        self.slots
            .iter()
            .filter(|slot| slot.addr != 0)
            .map(|slot| (slot.addr, slot.block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn agrees_with_a_hash_map(ops in prop::collection::vec((any::<bool>(), 1usize..600), 1..4000)) {
            let mut map = AddrMap::default();
            let mut model = HashMap::new();
            for (step, (add, key)) in ops.into_iter().enumerate() {
                let addr = key * 512;
                if add {
                    if model.insert(addr, step as u32).is_none() {
                        map.insert(addr, BlockId(step as u32));
                    } else {
                        map.remove(addr);
                        map.insert(addr, BlockId(step as u32));
                    }
                } else {
                    prop_assert_eq!(map.remove(addr).map(|id| id.0), model.remove(&addr));
                }
                prop_assert_eq!(map.len(), model.len());
            }
            for key in 0..600 {
                let addr = key * 512;
                prop_assert_eq!(map.get(addr).map(|id| id.0), model.get(&addr).copied());
            }
            prop_assert_eq!(map.iter().count(), model.len());
        }
    }

    #[test]
    fn grows_and_keeps_everything() {
        let mut map = AddrMap::default();
        for n in 1..=100_000usize {
            map.insert(n << 21, BlockId(n as u32));
        }
        for n in 1..=100_000usize {
            assert_eq!(map.get(n << 21), Some(BlockId(n as u32)));
        }
        assert_eq!(map.get(3), None);
        assert_eq!(map.get(0), None);
    }
}
