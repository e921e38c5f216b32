//! The blocks of a lease, by address: an index that is probed linearly, of words that tell the address and the entry.

use crate::ids::BlockId;
use crate::size::MIN_BLOCK_SIZE;

/// Fibonacci hashing: 2^64 / golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
/// log2 of the most blocks a lease has.
const ENTRY_BITS: u32 = 12;
/// The most blocks a lease has.
pub(super) const MOST_BLOCKS: usize = 1 << ENTRY_BITS;
/// Twice as many words, so that a probe is short.
const WORD_BITS: u32 = ENTRY_BITS + 1;
const WORDS: usize = 1 << WORD_BITS;
/// log2 of the addresses that a word has room for.
const ADDRESS_BITS: u32 = 64 - ENTRY_BITS + MIN_BLOCK_SIZE.ilog2();

/// Stands for no entry.
pub(super) const NO_ENTRY: u16 = u16::MAX;

/// A block that was lent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// 0: no block.
    pub addr: usize,
    /// Bytes the client asked for; 0: it is free.
    pub requested: usize,
    pub block: BlockId,
    /// Its size in units of 512 bytes.
    pub units: u32,
    /// Of these, those that don't count while it is handed out.
    pub slack: u16,
    /// How often it was given back, modulo 2^16.
    pub frees: u16,
    /// The next free one of its size, or the next place without a block.
    pub next: u16,
}

impl Entry {
    /// A place without a block.
    pub(super) const VACANT: Self = Self {
        addr: 0,
        requested: 0,
        block: BlockId::NONE,
        units: 0,
        slack: 0,
        frees: 0,
        next: NO_ENTRY,
    };

    #[inline]
    pub fn size(&self) -> usize {
        self.units as usize * MIN_BLOCK_SIZE
    }

    /// Bytes that count while it is handed out.
    #[inline]
    pub fn counted(&self) -> usize {
        self.size() - usize::from(self.slack) * MIN_BLOCK_SIZE
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Table {
    /// 0: empty.
    words: Box<[u64; WORDS]>,
    entries: Box<[Entry; MOST_BLOCKS]>,
    /// Places that were ever used.
    used: usize,
    len: usize,
    vacant: u16,
}

#[inline]
fn word_of(addr: usize, entry: u16) -> u64 {
    ((addr / MIN_BLOCK_SIZE) as u64) << ENTRY_BITS | u64::from(entry)
}

#[inline]
fn home_of(word: u64) -> usize {
    ((word >> ENTRY_BITS).wrapping_mul(MULTIPLIER) >> (64 - WORD_BITS)) as usize
}

#[inline]
fn entry_of(word: u64) -> u16 {
    word as u16 & (MOST_BLOCKS - 1) as u16
}

/// On the heap, without a copy on the stack.
fn filled<T: Copy, const N: usize>(value: T) -> Box<[T; N]> {
    let values = vec![value; N].into_boxed_slice();
    match values.try_into() {
        Ok(array) => array,
        Err(_) => unreachable!("of that length"),
    }
}

impl Table {
    pub fn new() -> Self {
        Self {
            words: filled(0),
            entries: filled(Entry::VACANT),
            used: 0,
            len: 0,
            vacant: NO_ENTRY,
        }
    }

    #[inline]
    pub fn entry(&self, at: u16) -> &Entry {
        &self.entries[usize::from(at) % MOST_BLOCKS]
    }

    #[inline]
    pub fn entry_mut(&mut self, at: u16) -> &mut Entry {
        &mut self.entries[usize::from(at) % MOST_BLOCKS]
    }

    /// Where the word of an address stands, if it is there.
    #[inline]
    fn find_word(&self, addr: usize) -> Option<usize> {
        let sought = word_of(addr, 0);
        let mut at = home_of(sought);
        loop {
            let word = self.words[at % WORDS];
            if word == 0 {
                return None;
            }
            if word & !(MOST_BLOCKS as u64 - 1) == sought {
                return Some(at % WORDS);
            }
            at += 1;
        }
    }

    /// The entry of the block that starts at an address.
    #[inline]
    pub fn find(&self, addr: usize) -> Option<u16> {
        let at = entry_of(self.words[self.find_word(addr)?]);
        (self.entry(at).addr == addr).then_some(at)
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no room for another block.
    pub fn is_full(&self) -> bool {
        self.len == MOST_BLOCKS
    }

    /// The same, if the client has it.
    #[inline]
    pub fn find_handed_out(&self, addr: usize) -> Option<u16> {
        let at = self.find(addr)?;
        (self.entry(at).requested != 0).then_some(at)
    }

    /// Bytes of bookkeeping held.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.words) + size_of_val(&*self.entries)
    }

    /// Adds a block that is not there, if there is room and its address can be told from others.
    pub fn insert(&mut self, entry: Entry) -> Option<u16> {
        if entry.addr >> ADDRESS_BITS != 0 || !entry.addr.is_multiple_of(MIN_BLOCK_SIZE) {
            return None;
        }
        if self.is_full() {
            return None;
        }
        let at = match self.vacant {
            NO_ENTRY => {
                self.used += 1;
                (self.used - 1) as u16
            }
            at => {
                self.vacant = self.entry(at).next;
                at
            }
        };
        self.len += 1;
        let word = word_of(entry.addr, at);
        *self.entry_mut(at) = entry;
        let mut place = home_of(word);
        while self.words[place % WORDS] != 0 {
            place += 1;
        }
        self.words[place % WORDS] = word;
        Some(at)
    }

    /// Takes a block out.
    pub fn remove(&mut self, at: u16) -> Entry {
        self.len -= 1;
        let vacant = std::mem::replace(&mut self.vacant, at);
        let place = self.entry_mut(at);
        let entry = std::mem::replace(place, Entry::VACANT);
        place.next = vacant;
        if let Some(mut hole) = self.find_word(entry.addr) {
            // What was passed by for want of room moves up.
            let mut next = hole;
            loop {
                next = (next + 1) % WORDS;
                let word = self.words[next];
                if word == 0 {
                    break;
                }
                let from_home = |at: usize| at.wrapping_sub(home_of(word)) % WORDS;
                if from_home(hole) < from_home(next) {
                    self.words[hole] = word;
                    hole = next;
                }
            }
            self.words[hole] = 0;
        }
        entry
    }

    /// Takes all blocks out.
    pub fn drain(&mut self, mut each: impl FnMut(Entry)) {
        if self.used == 0 {
            return;
        }
        for place in &mut self.entries[..self.used] {
            let entry = std::mem::replace(place, Entry::VACANT);
            if entry.addr != 0 {
                each(entry);
            }
        }
        self.words.fill(0);
        (self.used, self.len, self.vacant) = (0, 0, NO_ENTRY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn entry(addr: usize) -> Entry {
        Entry {
            addr,
            block: BlockId(addr as u32 / 512),
            ..Entry::VACANT
        }
    }

    #[test]
    fn it_is_full_at_some_point_and_takes_more_after_that() {
        let mut table = Table::new();
        for n in 1..=MOST_BLOCKS {
            assert_eq!(table.insert(entry(n * 512)), Some(n as u16 - 1));
        }
        assert_eq!(table.insert(entry(1 << 40)), None);
        assert_eq!(table.remove(7).addr, 8 * 512);
        assert_eq!(table.find(8 * 512), None);
        assert_eq!(table.insert(entry(1 << 40)), Some(7));
        assert_eq!(table.find(1 << 40), Some(7));
        let mut drained = 0;
        table.drain(|_| drained += 1);
        assert_eq!(drained, MOST_BLOCKS);
        assert_eq!(table.find(512), None);
        assert_eq!(table.insert(entry(512)), Some(0));
    }

    #[test]
    fn addresses_that_can_not_be_told_apart_are_not_taken() {
        let mut table = Table::new();
        let most = 1 << ADDRESS_BITS;
        assert_eq!(table.insert(entry(520)), None);
        assert_eq!(table.insert(entry(most)), None);
        assert!(table.insert(entry(most - 512)).is_some());
        assert!(table.insert(entry(512)).is_some());
        for addr in [0, 8, 520, 512 + most, most] {
            assert_eq!(table.find(addr), None, "{addr:#x}");
        }
    }

    proptest! {
        #[test]
        fn finds_what_a_map_finds(ops in prop::collection::vec((any::<bool>(), 0usize..64), 1..400)) {
            // Addresses that share few homes.
            let near = (1usize..1 << 20).map(|n| n * 512);
            let addresses: Vec<_> = near.filter(|addr| home_of(word_of(*addr, 0)) < 24).take(64).collect();
            let (mut table, mut plain) = (Table::new(), HashMap::new());
            for (add, which) in ops {
                let addr = addresses[which];
                match (add, plain.contains_key(&addr)) {
                    (true, false) => {
                        let at = table.insert(entry(addr)).expect("room");
                        plain.insert(addr, at);
                    }
                    (false, true) => {
                        let at = plain.remove(&addr).expect("there");
                        prop_assert_eq!(table.remove(at).block, entry(addr).block);
                    }
                    _ => {}
                }
                for addr in &addresses {
                    prop_assert_eq!(table.find(*addr), plain.get(addr).copied());
                }
            }
            let mut left = Vec::new();
            table.drain(|entry| left.push(entry.addr));
            left.sort_unstable();
            let mut expected: Vec<_> = plain.into_keys().collect();
            expected.sort_unstable();
            prop_assert_eq!(left, expected);
        }
    }
}
