//! One thread's lease: what it does by itself.

use super::sizes::Sizes;
use super::table::{Entry, MOST_BLOCKS, Table};
use super::terms::{Former, Put, Returned, Terms};
use crate::ids::StreamKey;
use crate::size::{MIN_BLOCK_SIZE, MOST_STEPPED, SMALL_SIZE, kept_size};
use crate::stats::Allowance;

/// Frees after which the lease is to be looked at: whether other threads use theirs.
const TERM: u32 = 1 << 14;

/// Requests on other streams in a row after which a lease is of no use.
const MOST_STRANGERS: u32 = 64;

/// See the module's text. Without terms it has nothing.
#[derive(Debug, Default)]
pub struct Lease {
    terms: Option<Terms>,
    /// What counts of the blocks it hands out and takes back.
    pub allowance: Allowance,
    /// Blocks given back.
    frees: u64,
    /// Until it is looked at.
    left: u32,
    /// Requests on other streams, since one on its own came here that it did not serve.
    strangers: u32,
    parts: Option<Box<(Table, Sizes)>>,
    /// The blocks that were handed out when it ended last.
    former: Vec<Former>,
}

impl Lease {
    /// Makes room for blocks. Allocates, the first time only.
    #[inline]
    pub fn prepare(&mut self) {
        let former = &mut self.former;
        self.parts.get_or_insert_with(|| {
            former.reserve_exact(MOST_BLOCKS);
            Box::new((Table::new(), Sizes::new()))
        });
    }

    /// What it is good for, if for anything.
    #[inline]
    pub fn terms(&self) -> Option<&Terms> {
        self.terms.as_ref()
    }

    /// Begins, if there is room for blocks: it has none, and no allowance.
    pub fn begin(&mut self, terms: Terms) {
        debug_assert!(self.terms.is_none());
        if let Some(parts) = &mut self.parts {
            parts.1.reset(terms.most);
            self.terms = Some(terms);
            (self.left, self.strangers) = (TERM, 0);
        }
    }

    /// Notes a request that it did not serve. Whether it is of no use, as its thread works on another stream now.
    pub fn note_request(&mut self, stream: StreamKey) -> bool {
        if self.terms.is_some_and(|terms| terms.stream == stream) {
            self.strangers = 0;
        } else {
            self.strangers += 1;
        }
        self.strangers > MOST_STRANGERS
    }

    /// A block for a request that the lease is good for, if it has one, and room to count it.
    #[inline]
    pub fn take(&mut self, bytes: usize, stream: StreamKey) -> Option<usize> {
        let terms = self.terms.as_ref().filter(|terms| terms.stream == stream)?;
        let (table, sizes) = &mut **self.parts.as_mut()?;
        let (counted, size) = terms.sizes(bytes);
        let small = size <= SMALL_SIZE;
        let mut units = units_of(size)?;
        if !sizes.has(units) {
            let larger = kept_size(size + MIN_BLOCK_SIZE);
            let same_list = (larger <= SMALL_SIZE) == small;
            if !terms.larger || larger > MOST_STEPPED || !same_list {
                return None;
            }
            units = units_of(larger).filter(|units| sizes.has(*units))?;
        }
        if !self
            .allowance
            .handed_out(small, counted as i64, bytes as i64)
        {
            return None;
        }
        let at = sizes.take(units, table)?;
        let entry = table.entry_mut(at);
        entry.requested = bytes;
        entry.slack = ((entry.size() - counted) / MIN_BLOCK_SIZE) as u16;
        Some(entry.addr)
    }

    /// One of the blocks that were handed out when it ended last, each once.
    pub fn next_former(&mut self) -> Option<Former> {
        self.former.pop()
    }

    /// Whether [`Self::take`] finds a block, if there is room to count it.
    pub fn has(&self, size: usize) -> bool {
        let units = units_of(size);
        self.parts
            .as_ref()
            .zip(units)
            .is_some_and(|(parts, units)| parts.1.has(units))
    }

    /// Whether it takes a free block of that size.
    pub fn takes(&self, size: usize) -> bool {
        let units = units_of(size);
        let parts = self.parts.as_ref().filter(|_| self.terms.is_some());
        parts
            .zip(units)
            .is_some_and(|(parts, units)| parts.1.takes(units, size))
    }

    /// Blocks it has.
    pub fn blocks(&self) -> usize {
        self.parts.as_ref().map_or(0, |parts| parts.0.len())
    }

    /// Bytes of bookkeeping held.
    pub fn heap_bytes(&self) -> usize {
        let tables = self.parts.as_ref().map_or(0, |parts| parts.0.heap_bytes());
        tables + self.former.capacity() * size_of::<Former>()
    }

    /// Whether it has half as many blocks as it may have.
    pub fn is_half_full(&self) -> bool {
        self.blocks() >= MOST_BLOCKS / 2
    }

    /// Whether it has as many blocks as it may have.
    pub fn is_full(&self) -> bool {
        self.blocks() == MOST_BLOCKS
    }

    /// Takes the block at an address back, if it handed that out and has room for it.
    #[inline]
    pub fn put(&mut self, addr: usize) -> Put {
        let Some((table, sizes)) = self.parts.as_deref_mut() else {
            return Put::Unknown;
        };
        let Some(at) = table.find_handed_out(addr) else {
            return Put::Unknown;
        };
        let entry = table.entry_mut(at);
        if self.left == 0 || !sizes.takes(entry.units, entry.size()) {
            return Put::Full;
        }
        self.left -= 1;
        self.frees += 1;
        give_back(&mut self.allowance, entry);
        sizes.put(at, entry);
        Put::Done
    }

    /// As [`Self::put`], where that says [`Put::Full`]: half of the free blocks in its way come back. False if the lease
    /// handed out no such block.
    pub fn put_all(&mut self, addr: usize, mut each: impl FnMut(Returned)) -> bool {
        let Some((table, sizes)) = self.parts.as_deref_mut() else {
            return false;
        };
        let Some(at) = table.find_handed_out(addr) else {
            return false;
        };
        let entry = table.entry_mut(at);
        self.frees += 1;
        give_back(&mut self.allowance, entry);
        let (units, size) = (entry.units, entry.size());
        if !sizes.takes(units, size) {
            let (rivals, count) = sizes.rivals(units);
            for _ in 0..count.div_ceil(2) {
                if let Some(other) = sizes.take(rivals, table) {
                    each(table.remove(other).into());
                }
            }
        }
        if sizes.takes(units, size) {
            sizes.put(at, table.entry_mut(at));
        } else {
            each(table.remove(at).into());
        }
        true
    }

    /// A free block of that size comes back, if there is one.
    pub fn give_up(&mut self, size: usize) -> Option<Returned> {
        let (table, sizes) = &mut **self.parts.as_mut()?;
        let at = sizes.take(units_of(size)?, table)?;
        Some(table.remove(at).into())
    }

    /// Whether it was to be looked at. It begins a new term then.
    pub fn has_ended(&mut self) -> bool {
        let ended = self.left == 0;
        if ended {
            self.left = TERM;
        }
        ended
    }

    /// Lends it a block that is handed out (`requested` > 0), or free. False if it takes no such block.
    pub fn lend(&mut self, addr: usize, lent: Returned) -> bool {
        let (Some(parts), Some(units)) = (&mut self.parts, units_of(lent.size)) else {
            return false;
        };
        let (table, sizes) = &mut **parts;
        let free = lent.requested == 0;
        if self.terms.is_none() || free && !sizes.takes(units, lent.size) {
            return false;
        }
        let entry = Entry {
            addr,
            requested: lent.requested,
            block: lent.block,
            units,
            slack: lent.slack,
            frees: 0,
            next: 0,
        };
        let Some(at) = table.insert(entry) else {
            return false;
        };
        if free {
            sizes.put(at, table.entry_mut(at));
        }
        true
    }

    /// Ends it: all blocks come back. Returns how many were given back since it began.
    /// `each` tells a block's generation.
    pub fn end(&mut self, mut each: impl FnMut(Returned) -> u16) -> u64 {
        if self.terms.take().is_some()
            && let Some(parts) = &mut self.parts
        {
            self.former.clear();
            parts.0.drain(|entry| {
                let generation = each(entry.into());
                if entry.requested != 0 {
                    self.former.push(Former {
                        block: entry.block,
                        generation,
                    });
                }
            });
        }
        std::mem::take(&mut self.frees)
    }
}

#[inline]
fn units_of(size: usize) -> Option<u32> {
    u32::try_from(size / MIN_BLOCK_SIZE).ok()
}

#[inline]
fn give_back(allowance: &mut Allowance, entry: &mut Entry) {
    let requested = std::mem::take(&mut entry.requested);
    let small = entry.size() <= SMALL_SIZE;
    allowance.freed(small, entry.counted() as i64, requested as i64);
    entry.slack = 0;
    entry.frees = entry.frees.wrapping_add(1);
}
