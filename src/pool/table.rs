//! Private pools (graph captures, `MemPool`): made and shared by id, freed when unused and empty.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::ids::{MempoolId, PoolId};
use crate::stats::PoolStat;

/// One private pool.
#[derive(Debug)]
pub struct PrivatePool {
    /// Its name.
    pub id: MempoolId,
    /// Users: graphs, `MemPool` objects, routes. At 0 its idle memory may go back to the driver.
    pub use_count: u32,
    /// When a user left last, on the device's clock: work on the pool's memory may have been submitted until then.
    pub released: u64,
    /// A graph may have its memory. Replays use it on any stream, and nothing tells of them.
    pub captured: bool,
    /// Segments it holds, and threads that are obtaining one for it.
    pub segments: usize,
    /// Memory comes from an allocator of the pool's own.
    pub external: bool,
    /// Blocks are handed out whole.
    pub no_split: bool,
}

/// Every private pool of a device.
#[derive(Debug, Default)]
pub struct PoolTable {
    /// Slot n holds pool n + 1; pool 0 is the default pool.
    slots: Vec<Option<PrivatePool>>,
    by_id: HashMap<MempoolId, PoolId>,
    use_on_oom: HashSet<MempoolId>,
    no_split: HashSet<MempoolId>,
    /// Holds that have not ended.
    holds: usize,
    /// Reserved bytes of pools that hold or have held memory. Programs make pools without end, so an
    /// entry goes with its pool.
    reserved: BTreeMap<MempoolId, PoolStat>,
}

impl PoolTable {
    /// The pool of this name.
    pub fn find(&self, id: MempoolId) -> Option<PoolId> {
        self.by_id.get(&id).copied()
    }

    /// The pool; `None` for the default one.
    pub fn get(&self, pool: PoolId) -> Option<&PrivatePool> {
        self.slots.get(pool.index().checked_sub(1)?)?.as_ref()
    }

    /// The pool, to change it.
    pub fn get_mut(&mut self, pool: PoolId) -> Option<&mut PrivatePool> {
        self.slots.get_mut(pool.index().checked_sub(1)?)?.as_mut()
    }

    /// The pool's name.
    pub fn id_of(&self, pool: PoolId) -> MempoolId {
        self.get(pool).map_or(MempoolId::DEFAULT, |pool| pool.id)
    }

    /// Makes a pool, used once.
    pub fn create(&mut self, id: MempoolId, external: bool) -> PoolId {
        let pool = PrivatePool {
            id,
            use_count: 1,
            released: 0,
            captured: false,
            segments: 0,
            external,
            no_split: self.no_split.contains(&id),
        };
        let at = match self.slots.iter().position(Option::is_none) {
            Some(at) => {
                self.slots[at] = Some(pool);
                at
            }
            None => {
                self.slots.push(Some(pool));
                self.slots.len() - 1
            }
        };
        let pool = PoolId(at as u32 + 1);
        self.by_id.insert(id, pool);
        pool
    }

    /// Forgets a pool.
    pub fn remove(&mut self, pool: PoolId) {
        if let Some(slot) = pool
            .index()
            .checked_sub(1)
            .and_then(|at| self.slots.get_mut(at))
            && let Some(removed) = slot.take()
        {
            self.by_id.remove(&removed.id);
            self.reserved.remove(&removed.id);
        }
    }

    /// Whether a graph may be replayed that has a pool's memory, or may run still, where the device was waited for after
    /// `tick`.
    pub fn is_of_graph(&self, pool: PoolId, tick: u64) -> bool {
        let graphs = self.get(pool).filter(|pool| pool.captured);
        graphs.is_some_and(|pool| pool.use_count > 0 || pool.released > tick)
    }

    /// Every pool.
    pub fn iter(&self) -> impl Iterator<Item = (PoolId, &PrivatePool)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(at, slot)| Some((PoolId(at as u32 + 1), slot.as_ref()?)))
    }

    /// Opts a pool in or out of serving other requests before memory runs out.
    pub fn set_use_on_oom(&mut self, id: MempoolId, on: bool) {
        if on {
            self.use_on_oom.insert(id);
        } else {
            self.use_on_oom.remove(&id);
        }
    }

    /// The pools that serve other requests before memory runs out, in a fixed order.
    pub fn overflow_pools(&self) -> Vec<PoolId> {
        self.iter()
            .filter(|(_, pool)| self.use_on_oom.contains(&pool.id))
            .map(|(pool, _)| pool)
            .collect()
    }

    /// From now on the pool's blocks are handed out whole.
    pub fn set_no_split(&mut self, id: MempoolId) {
        self.no_split.insert(id);
        if let Some(pool) = self.find(id)
            && let Some(pool) = self.get_mut(pool)
        {
            pool.no_split = true;
        }
    }

    /// A thread obtains a segment for the pool with the lock released: the pool must stay meanwhile.
    pub fn hold(&mut self, pool: PoolId) {
        if let Some(pool) = self.get_mut(pool) {
            pool.segments += 1;
            self.holds += 1;
        }
    }

    /// Ends [`Self::hold`].
    pub fn unhold(&mut self, pool: PoolId) {
        if let Some(pool) = self.get_mut(pool) {
            pool.segments -= 1;
            self.holds -= 1;
        }
    }

    /// Number of holds that have not ended.
    pub fn holds(&self) -> usize {
        self.holds
    }

    /// Counts a segment that the pool gained (`bytes` > 0) or lost.
    pub fn count_segment(&mut self, pool: PoolId, small: bool, bytes: i64) {
        let Some(private) = self.get_mut(pool) else {
            return;
        };
        if bytes > 0 {
            private.segments += 1;
        } else {
            private.segments -= 1;
        }
        let id = private.id;
        self.reserved.entry(id).or_default().change(small, bytes);
    }

    /// A segment that was taken out of the pool and put back never moved.
    pub fn forget_move(&mut self, pool: PoolId, small: bool, bytes: i64) {
        if let Some(id) = self.get(pool).map(|pool| pool.id) {
            let reserved = self.reserved.entry(id).or_default();
            reserved.forget_move(small, bytes);
        }
    }

    /// Counts memory that virtual segments of the pool gained or lost.
    pub fn count_mapped(&mut self, pool: PoolId, small: bool, bytes: i64) {
        if let Some(id) = self.get(pool).map(|pool| pool.id) {
            self.reserved.entry(id).or_default().change(small, bytes);
        }
    }

    /// Counts a reservation that the pool gained.
    pub fn count_range(&mut self, pool: PoolId) {
        if let Some(pool) = self.get_mut(pool) {
            pool.segments += 1;
        }
    }

    /// Counts a reservation that the pool lost.
    pub fn uncount_range(&mut self, pool: PoolId) {
        if let Some(pool) = self.get_mut(pool) {
            pool.segments -= 1;
        }
    }

    /// Reserved bytes by pool.
    pub fn reserved(&self) -> impl ExactSizeIterator<Item = (MempoolId, &PoolStat)> {
        self.reserved.iter().map(|(id, stat)| (*id, stat))
    }

    /// Forgets accumulated statistics.
    pub fn reset_accumulated(&mut self) {
        self.reserved
            .values_mut()
            .for_each(PoolStat::reset_accumulated);
    }

    /// Peaks become the current values.
    pub fn reset_peak(&mut self) {
        self.reserved.values_mut().for_each(PoolStat::reset_peak);
    }
}
