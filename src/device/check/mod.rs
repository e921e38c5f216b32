//! The consistency checker: verifies every invariant by recounting. For tests, fuzzers and debugging:
//! it walks all blocks under the lock.

mod guests;
mod pages;

use std::collections::{HashMap, HashSet};

use crate::block::{BlockState, NO_USES};
use crate::device::DeviceAllocator;
use crate::device::state::State;
use crate::error::{AllocError, Result};
use crate::ids::{BlockId, MempoolId, PoolId};
use crate::size::MIN_BLOCK_SIZE;

macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}

type Check = std::result::Result<(), String>;

impl DeviceAllocator {
    /// Verifies every invariant; the error names the first one broken.
    pub fn check_consistency(&self) -> Result<()> {
        let state = self.state.lock_unseen();
        state
            .check()
            .map_err(|broken| AllocError::Internal(format!("device {}: {broken}", self.id.0)))
    }
}

impl State {
    fn check(&self) -> Check {
        self.check_tiling()?;
        self.check_free_lists()?;
        self.check_live_map()?;
        self.check_events()?;
        self.check_stats()?;
        self.check_pools()?;
        self.check_pages()?;
        self.check_page_counts()?;
        self.check_guests()?;
        self.check_clock()
    }

    /// Blocks tile their segments without gap or overlap, segments don't overlap, and two free
    /// neighbours do not exist.
    fn check_tiling(&self) -> Check {
        let mut seen = HashSet::new();
        let mut spans: Vec<(usize, usize)> = Vec::new();
        for (segment_id, segment) in self.segments.iter() {
            spans.push((segment.addr, segment.size));
            let mut at = segment.addr;
            let mut prev = BlockId::NONE;
            let mut prev_free = false;
            let mut next = segment.first;
            while let Some(id) = next.some() {
                let block = &self.arena[id];
                ensure!(seen.insert(id), "block {id:?} is in two places");
                ensure!(
                    block.segment == segment_id,
                    "block {id:?} names the wrong segment"
                );
                ensure!(block.prev == prev, "block {id:?} has a wrong left link");
                ensure!(
                    block.addr == at,
                    "gap or overlap before block {id:?} at {at:#x}"
                );
                ensure!(block.size > 0, "block {id:?} is empty");
                ensure!(
                    block.size.is_multiple_of(MIN_BLOCK_SIZE),
                    "block {id:?} has an odd size"
                );
                let active = matches!(block.state, BlockState::Live | BlockState::Pending);
                ensure!(
                    !active || usize::from(block.slack) * MIN_BLOCK_SIZE < block.size,
                    "nothing of block {id:?} counts"
                );
                ensure!(
                    !self.arena.marks.is_set(id) || block.is_plain(),
                    "block {id:?} is marked as one that a free need not look at"
                );
                let free = block.state == BlockState::Free;
                ensure!(!(free && prev_free), "free neighbours left of block {id:?}");
                let list = &self.lists[block.list];
                ensure!(
                    (list.pool, list.stream, block.list.is_small())
                        == (segment.pool, segment.stream, segment.small),
                    "block {id:?} is on the list of another pool or stream"
                );
                if let Some(pages) = &segment.pages {
                    let backed = match block.state {
                        BlockState::Busy => None,
                        state => Some(state != BlockState::Unmapped),
                    };
                    let pages_agree = pages
                        .touching(block.addr, block.end())
                        .all(|page| backed.is_none_or(|backed| pages.is_mapped(page) == backed));
                    ensure!(pages_agree, "block {id:?} and its pages disagree");
                    ensure!(
                        block.list.is_virtual(),
                        "block {id:?} is on a list of fixed segments"
                    );
                } else {
                    ensure!(
                        !block.list.is_virtual(),
                        "block {id:?} is on a list of virtual segments"
                    );
                }
                at = block.end();
                (prev, prev_free, next) = (id, free, block.next);
            }
            let end = segment.addr + segment.size;
            ensure!(
                at == end,
                "segment {segment_id:?} is tiled up to {at:#x}, not {end:#x}"
            );
        }
        ensure!(
            seen.len() == self.arena.len(),
            "{} blocks in segments, {} in the arena",
            seen.len(),
            self.arena.len()
        );
        spans.sort_unstable();
        for pair in spans.windows(2) {
            ensure!(
                pair[0].0 + pair[0].1 <= pair[1].0,
                "segments overlap at {:#x}",
                pair[1].0
            );
        }
        Ok(())
    }

    /// The lists hold exactly the free blocks that are large enough for their requests, each on its own list.
    fn check_free_lists(&self) -> Check {
        let (mut listed, mut unmapped) = (0, 0);
        for (list_id, list) in self.lists.iter() {
            let (mut count, mut bytes) = (0, 0);
            for id in list.free.iter(&self.arena) {
                let block = &self.arena[id];
                ensure!(
                    block.state == BlockState::Free,
                    "listed block {id:?} is not free"
                );
                ensure!(block.list == list_id, "block {id:?} is on a foreign list");
                let fit = list
                    .free
                    .best_fit(block.size)
                    .map(|fit| self.arena[fit].size);
                ensure!(
                    fit == Some(block.size),
                    "block {id:?} is not found by its own size"
                );
                count += 1;
                bytes += block.size;
            }
            ensure!(
                bytes == list.free.bytes(&self.arena),
                "list {list_id:?} miscounts its bytes"
            );
            for (addr, id) in &list.unmapped {
                let block = &self.arena[*id];
                ensure!(
                    block.state == BlockState::Unmapped && block.addr == *addr,
                    "unmapped list {list_id:?} is wrong about block {id:?}"
                );
            }
            unmapped += list.unmapped.len();
            listed += count;
        }
        let free = self.arena.iter().filter(|(_, block)| {
            let free = block.state == BlockState::Free;
            free && !self.lists[block.list].free.leaves_out(block.size)
        });
        let free = free.count();
        ensure!(
            listed == free,
            "{free} free blocks to be listed, {listed} are"
        );
        let (mut not_mapped, mut busy) = (0, 0);
        for (_, block) in self.arena.iter() {
            not_mapped += usize::from(block.state == BlockState::Unmapped);
            busy += usize::from(block.state == BlockState::Busy);
        }
        ensure!(
            unmapped == not_mapped,
            "{not_mapped} unmapped blocks, {unmapped} listed"
        );
        ensure!(
            busy == self.busy,
            "{busy} busy blocks, {} counted",
            self.busy
        );
        Ok(())
    }

    /// The map holds exactly the live blocks.
    fn check_live_map(&self) -> Check {
        let live = self
            .arena
            .iter()
            .filter(|(_, b)| b.state == BlockState::Live)
            .count();
        ensure!(
            live == self.live.len(),
            "{live} live blocks, {} in the map",
            self.live.len()
        );
        for id in self.live.iter() {
            let block = &self.arena[id];
            ensure!(
                block.state == BlockState::Live,
                "mapped block {id:?} is not live"
            );
            ensure!(
                self.live.get(block.addr, &self.arena) == Some(id),
                "block {id:?} can't be looked up"
            );
        }
        Ok(())
    }

    /// Pending blocks wait for exactly their outstanding events; others wait for none.
    fn check_events(&self) -> Check {
        let mut waiting: HashMap<BlockId, u32> = HashMap::new();
        let uses = self.events.pending.iter().map(|(_, pending)| pending.block);
        let unfenced = self.events.unfenced.iter().map(|(id, _)| id);
        let unfenced = unfenced.chain(&self.events.deferred).copied();
        for id in uses.chain(unfenced) {
            *waiting.entry(id).or_default() += 1;
        }
        ensure!(
            self.events.pending.iter().count() == self.events.pending.len(),
            "pending events miscounted"
        );
        let uses: Vec<_> = self.events.pending.iter().collect();
        for (at, (stream, this)) in uses.iter().enumerate() {
            let next = uses.get(at + 1);
            let shared = next.is_some_and(|next| next.0 == *stream && next.1.event == this.event);
            ensure!(
                this.last != shared && !self.events.idle.contains(&this.event),
                "event {:?} of block {:?} is given back too early, or never",
                this.event,
                this.block
            );
        }
        let mut with_uses = 0;
        let mut missing = 0;
        for (id, block) in self.arena.iter() {
            let known = waiting.get(&id).copied().unwrap_or(0);
            ensure!(
                known <= u32::from(block.events),
                "block {id:?} has more events than it counts"
            );
            missing += (u32::from(block.events) - known) as usize;
            ensure!(
                (block.state == BlockState::Pending) == (block.events > 0),
                "block {id:?} is {:?} with {} events",
                block.state,
                block.events
            );
            if block.uses != NO_USES {
                ensure!(
                    block.state == BlockState::Live || self.events.deferred.contains(&id),
                    "block {id:?} has uses but is not live"
                );
                with_uses += 1;
            }
        }
        ensure!(
            missing == self.events.detached,
            "{missing} events unaccounted for, {}",
            self.events.detached
        );
        ensure!(with_uses == self.events.uses.len(), "stream uses leaked");
        Ok(())
    }

    /// Every private pool counts its segments and bytes, and its lists and segments name a pool that
    /// exists.
    fn check_pools(&self) -> Check {
        let mut bytes: HashMap<MempoolId, i64> = HashMap::new();
        let mut segments: HashMap<PoolId, usize> = HashMap::new();
        for (id, segment) in self.segments.iter() {
            if segment.pool != PoolId::DEFAULT {
                ensure!(
                    self.pools.get(segment.pool).is_some(),
                    "{id:?} is in a pool that is gone"
                );
                *bytes.entry(self.pools.id_of(segment.pool)).or_default() +=
                    segment.held_bytes() as i64;
                *segments.entry(segment.pool).or_default() += 1;
            }
        }
        let mut held_by_threads = 0;
        for (id, pool) in self.pools.iter() {
            let held = segments.get(&id).copied().unwrap_or(0);
            ensure!(pool.segments >= held, "pool {id:?} miscounts its segments");
            held_by_threads += pool.segments - held;
        }
        ensure!(
            held_by_threads == self.pools.holds(),
            "a pool is held by nobody"
        );
        for (id, stat) in self.pools.reserved() {
            let held = bytes.get(&id).copied().unwrap_or(0);
            ensure!(
                stat.current() == held,
                "pool {id:?} says {} bytes, recounted {held}",
                stat.current()
            );
        }
        Ok(())
    }

    /// Every current value equals a recount.
    fn check_stats(&self) -> Check {
        for small in [true, false] {
            let mut recount = [0i64; 9];
            for (_, block) in self
                .arena
                .iter()
                .filter(|(_, b)| b.list.is_small() == small)
            {
                let size = match block.state {
                    BlockState::Live | BlockState::Pending => block.counted() as i64,
                    _ => block.size as i64,
                };
                match block.state {
                    BlockState::Live => {
                        recount[0] += 1;
                        recount[1] += size;
                    }
                    BlockState::Free if block.is_split() && !block.list.is_virtual() => {
                        recount[5] += 1;
                        recount[6] += size;
                    }
                    _ => {}
                }
                if matches!(block.state, BlockState::Live | BlockState::Pending) {
                    recount[2] += 1;
                    recount[3] += size;
                    recount[4] += block.requested as i64;
                }
            }
            for (_, segment) in self.segments.iter().filter(|(_, s)| s.small == small) {
                recount[7] += i64::from(segment.pages.is_none());
                recount[8] += segment.held_bytes() as i64;
            }
            let stats = self.stats.report();
            let counted = [
                ("allocation", &stats.allocation),
                ("allocated_bytes", &stats.allocated_bytes),
                ("active", &stats.active),
                ("active_bytes", &stats.active_bytes),
                ("requested_bytes", &stats.requested_bytes),
                ("inactive_split", &stats.inactive_split),
                ("inactive_split_bytes", &stats.inactive_split_bytes),
                ("segment", &stats.segment),
                ("reserved_bytes", &stats.reserved_bytes),
            ];
            for ((name, stat), expected) in counted.into_iter().zip(recount) {
                let pool = if small { "small" } else { "large" };
                let stat = stat.pool(small);
                ensure!(
                    stat.current == expected,
                    "{name} of the {pool} pool says {}, recounted {expected}",
                    stat.current
                );
                ensure!(
                    stat.peak >= stat.current,
                    "{name} of the {pool} pool exceeds its peak"
                );
            }
        }
        Ok(())
    }
}
