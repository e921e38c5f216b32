//! The free indexes of one device: one for each (pool, stream, small or
//! large, fixed or virtual).

use std::collections::BTreeMap;

use crate::block::FreeIndex;
use crate::ids::{BlockId, ListId, PoolId, StreamKey};
use crate::size::SMALL_SIZE;

/// A free index and whose it is.
#[derive(Debug)]
pub struct FreeList {
    /// The pool it belongs to.
    pub pool: PoolId,
    /// Blocks are reused on this stream only.
    pub stream: StreamKey,
    /// Unmapped blocks by address; empty for fixed segments.
    pub unmapped: BTreeMap<usize, BlockId>,
    /// Reserved ranges of addresses.
    pub ranges: usize,
    /// Size of the smallest pages they ever had.
    pub least_page: usize,
    /// Bytes in fixed segments.
    pub held: usize,
    /// The free blocks that requests of this list may be for.
    pub free: FreeIndex,
}

#[derive(Debug, Clone, Copy)]
struct Pair {
    pool: PoolId,
    stream: StreamKey,
    /// The small list; the large one and the two of virtual segments follow it.
    small: ListId,
}

/// Every free index, by [`ListId`] and by (pool, stream).
#[derive(Debug, Default)]
pub struct FreeLists {
    lists: Vec<FreeList>,
    /// Most recently made last; searched linearly: a device has a handful of streams.
    pairs: Vec<Pair>,
    /// Position in `pairs` of the last hit.
    last: usize,
    /// Small lists of removed pools, for reuse.
    vacant: Vec<ListId>,
}

impl FreeLists {
    /// The list for a request, made when the (pool, stream) is new.
    #[inline]
    pub fn of(
        &mut self,
        pool: PoolId,
        stream: StreamKey,
        small: bool,
        virtual_memory: bool,
    ) -> ListId {
        let first = match self.pairs.get(self.last) {
            Some(pair) if pair.stream == stream && pair.pool == pool => pair.small,
            _ => self.find_or_make(pool, stream),
        };
        first.beside(small, virtual_memory)
    }

    #[cold]
    fn find_or_make(&mut self, pool: PoolId, stream: StreamKey) -> ListId {
        if let Some(at) = self
            .pairs
            .iter()
            .position(|p| p.stream == stream && p.pool == pool)
        {
            self.last = at;
            return self.pairs[at].small;
        }
        let first = self.vacant.pop().unwrap_or(ListId(self.lists.len() as u32));
        for offset in 0..4 {
            let id = ListId(first.0 + offset as u32);
            let least = if id.is_small() { 0 } else { SMALL_SIZE + 1 };
            let list = FreeList {
                pool,
                stream,
                unmapped: BTreeMap::new(),
                ranges: 0,
                least_page: usize::MAX,
                held: 0,
                free: FreeIndex::from_size(least),
            };
            match self.lists.get_mut(id.index()) {
                Some(slot) => *slot = list,
                None => self.lists.push(list),
            }
        }
        self.last = self.pairs.len();
        self.pairs.push(Pair {
            pool,
            stream,
            small: first,
        });
        first
    }

    /// Forgets the lists of a pool, which must be empty.
    pub fn remove_pool(&mut self, pool: PoolId) {
        let vacant = &mut self.vacant;
        self.pairs.retain(|pair| {
            if pair.pool == pool {
                vacant.push(pair.small);
            }
            pair.pool != pool
        });
        self.last = 0;
    }

    /// Every list.
    pub fn iter(&self) -> impl Iterator<Item = (ListId, &FreeList)> {
        self.lists
            .iter()
            .enumerate()
            .map(|(index, list)| (ListId(index as u32), list))
    }

    /// Gives back the room for sizes that are no longer free.
    pub fn shrink(&mut self) {
        self.lists.iter_mut().for_each(|list| list.free.shrink());
    }
}

impl std::ops::Index<ListId> for FreeLists {
    type Output = FreeList;

    #[inline]
    fn index(&self, id: ListId) -> &FreeList {
        &self.lists[id.index()]
    }
}

impl std::ops::IndexMut<ListId> for FreeLists {
    #[inline]
    fn index_mut(&mut self, id: ListId) -> &mut FreeList {
        &mut self.lists[id.index()]
    }
}
