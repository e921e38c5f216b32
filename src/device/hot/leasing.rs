//! Blocks leased to threads that would wait for each other otherwise: where several want the device's lock at once
//! ([`Crowd`](super::crowd::Crowd)), each gets a [`Lease`], which is free blocks and a part of the room below the peaks, and
//! hands out and takes back by itself. What its lease does not serve it gets here, and has it leased.
//!
//! A leased block looks live to everything else: its state is `Leased`, its entry stays in the address map, and only the
//! lease knows whether the client has it. So whoever takes the device's lock for more than to hand out or to take back,
//! has everything back first ([`State::recall`]): nobody sees what a lease has done but as if it had been done under the
//! lock.

use crate::device::DeviceAllocator;
use crate::device::state::State;
use crate::ids::{ListId, PoolId, StreamKey};
use crate::lease::{Lease, Put, Terms};
use crate::size::{MIN_BLOCK_SIZE, SMALL_SIZE};
use crate::sync::AsIs;

/// A lease gets one of so many parts of the room that there is.
const SHARERS: i64 = 2;
/// Free blocks that a lease gets with one that it asked for.
const SPARE: usize = 7;

impl DeviceAllocator {
    /// Takes the lock, which another thread has, unless the thread is to use its lease, or the lock is poisoned.
    #[cold]
    #[inline(never)]
    pub(super) fn wait(&self) -> Option<AsIs<'_, State>> {
        let (taken, leases) = self.state.lock_as_is()?.hold(State::note_wait);
        (!leases).then_some(taken)
    }

    /// [`Self::allocate_cached`] for one of several threads.
    #[inline(never)]
    pub(super) fn allocate_leased(&self, bytes: usize, stream: StreamKey) -> Option<usize> {
        let (slot, number) = self.leases.mine();
        let taken = slot.try_with(|lease| {
            let addr = lease.take(bytes, stream);
            if addr.is_none() {
                lease.prepare();
            }
            addr
        })?;
        if taken.is_some() {
            return taken;
        }
        self.state.lock_as_is_soon()?.with(|state| {
            state.finish_what_is_late();
            slot.with(|lease| {
                if lease.terms().is_none() {
                    state.begin_lease(lease, stream, self.pad);
                }
                state.serve_leased(lease, bytes, number, stream)
            })
        })
    }

    /// [`Self::deallocate_plain`] for one of several threads.
    #[inline(never)]
    pub(super) fn deallocate_leased(&self, addr: usize) -> bool {
        let (slot, number) = self.leases.mine();
        if slot.try_with(|lease| lease.put(addr)) == Some(Put::Done) {
            return true;
        }
        let Some(taken) = self.state.lock_as_is_soon() else {
            return false;
        };
        taken.with(|state| {
            state.finish_what_is_late();
            if !state.threads.leasing {
                return self.free_plain::<true>(state, addr);
            }
            let (took, alone) = slot.with(|lease| {
                let took = lease.put_all(addr, |returned| {
                    state.bring_back(returned);
                });
                if took {
                    (
                        true,
                        lease.has_ended() && state.threads.crowd.is_alone(number),
                    )
                } else {
                    (state.free_into(lease, addr), false)
                }
            });
            if alone {
                state.recall();
                state.end_crowd();
            }
            took || self.free_plain::<true>(state, addr)
        })
    }

    /// Blocks that a thread has on lease now: for tests.
    #[doc(hidden)]
    pub fn on_lease(&self, number: usize) -> usize {
        let slot = self.leases.slots().nth(number);
        let blocks = slot.and_then(|slot| slot.try_with(|lease| lease.blocks()));
        blocks.unwrap_or(0)
    }

    /// From now on threads get leases whether they wait for each other or not, as far as blocks may be leased: for tests.
    #[doc(hidden)]
    pub fn assume_crowd(&self) {
        self.state.lock().threads.crowd.always = true;
        self.signals.crowd(true);
    }
}

impl State {
    /// Notes that a thread waited for the lock. Whether it is to use its lease.
    #[cold]
    #[inline(never)]
    pub(super) fn note_wait(&mut self) -> bool {
        if self.threads.crowd.waited(self.tick) && self.may_lease() {
            self.threads.signals.crowd(true);
        }
        self.threads.signals.see().is_crowded()
    }

    /// Threads use the lock from now on.
    pub(super) fn end_crowd(&mut self) {
        self.threads.signals.crowd(self.threads.crowd.always);
    }

    /// Whether blocks may be leased. Other than while they are, there is nothing to do then but to hand out and to take back.
    fn may_lease(&self) -> bool {
        self.threads.leasing
            || self.cache.quick.keeps_large()
                && !self.attention
                && self.captures == 0
                && !self.stats.blocks.has_waiting()
                && self.settings.rounds_plainly()
    }

    fn begin_lease(&mut self, lease: &mut Lease, stream: StreamKey, pad: usize) {
        if !self.may_lease() {
            self.end_crowd();
            return;
        }
        // What is handed out stays below the peaks.
        let steps = self.cache.quick.has_steps() && self.affords_steps_up_to_peaks(1);
        let larger = steps && self.affords_steps_up_to_peaks(2);
        let virtual_memory = self.paging.virtual_memory;
        let mut list = |small| {
            self.lists
                .of(PoolId::DEFAULT, stream, small, virtual_memory)
        };
        let terms = Terms {
            stream,
            pad,
            steps,
            larger,
            lists: [list(true), list(false)],
            most: self.cache.quick.most(),
        };
        lease.begin(terms);
        if lease.terms().is_some() {
            (self.threads.leasing, self.attention) = (true, true);
        }
        // The rest stays free for others, so that the lease is not full again at once.
        while !lease.is_half_full()
            && let Some(former) = lease.next_former()
        {
            let block = self.arena.get(former.block);
            let there = block.filter(|block| block.generation == former.generation);
            let plain = there.filter(|block| block.is_plain());
            if plain.is_some_and(|block| terms.list(block.size) == block.list) {
                self.lease_out(lease, former.block);
            }
        }
    }

    /// A block for a request that its thread's lease did not serve. It is leased if the lease is for its stream.
    /// Nothing is served without a lease or with one that is to end, where a peak would move, and where no block is free.
    fn serve_leased(
        &mut self,
        lease: &mut Lease,
        bytes: usize,
        number: usize,
        stream: StreamKey,
    ) -> Option<usize> {
        let terms = *lease.terms()?;
        if lease.note_request(stream) || lease.is_full() {
            return None;
        }
        // All the room there is but that of other leases.
        self.stats.blocks.collect(&mut lease.allowance);
        let (counted, size) = terms.sizes(bytes);
        let small = size <= SMALL_SIZE;
        let mine = terms.stream == stream;
        let list = self
            .lists
            .of(PoolId::DEFAULT, stream, small, self.paging.virtual_memory);
        let has_room = |state: &Self| {
            let blocks = &state.stats.blocks;
            blocks.has_all_room(small, counted as i64, bytes as i64)
        };
        if !has_room(self) {
            self.collect_rooms(number);
            if !has_room(self) {
                return None;
            }
        }
        let addr = if mine && lease.has(size) {
            // It lacked room.
            self.stats.blocks.lend(&mut lease.allowance, 1);
            let addr = lease.take(bytes, stream);
            self.stats.blocks.collect(&mut lease.allowance);
            addr
        } else {
            let addr = self.serve_for_lease(lease, number, (bytes, counted, size), stream, list)?;
            if mine && let Some(id) = self.live.get(addr, &self.arena) {
                self.lease_out(lease, id);
                self.lease_spare(lease, list, size);
            }
            Some(addr)
        };
        self.stats.blocks.lend(&mut lease.allowance, SHARERS);
        addr
    }

    /// Hands a block out for a request of (`bytes`, `counted`, `size`) that moves no peak: one that was kept, a part of a
    /// free one, or of what free blocks of leases make up. Returns its address.
    fn serve_for_lease(
        &mut self,
        lease: &mut Lease,
        number: usize,
        (bytes, counted, size): (usize, usize, usize),
        stream: StreamKey,
        list: ListId,
    ) -> Option<usize> {
        let kept = self.take_kept::<true>(list, size, counted, bytes);
        if kept.is_some() {
            return kept;
        }
        // Those are handed out whole, and may count for more.
        let fixed = &self.lists[list.fixed()].free;
        if fixed.best_fit(MIN_BLOCK_SIZE).is_some() {
            return None;
        }
        let served = self.serve_virtual(bytes, counted, size, stream, list);
        if served.is_none() && self.gather(lease, number, list, size) {
            return self.serve_virtual(bytes, counted, size, stream, list);
        }
        served
    }

    /// Leases kept blocks of a size that its thread is likely to ask for again, all but one.
    fn lease_spare(&mut self, lease: &mut Lease, list: ListId, size: usize) {
        for _ in 0..SPARE {
            if !lease.takes(size) {
                return;
            }
            let Some(id) = self.cache.quick.take_spare(&self.arena, list, size) else {
                return;
            };
            if !self.lease_out(lease, id) {
                self.keep_no_more(id);
            }
        }
    }

    /// Gives a block back that was not leased, and leases it, so that its thread may hand it out again. False if nothing was
    /// done.
    fn free_into(&mut self, lease: &mut Lease, addr: usize) -> bool {
        let Some(id) = self.live.get(addr, &self.arena) else {
            return false;
        };
        let block = &self.arena[id];
        let (list, size) = (block.list, block.size);
        let mine = lease.terms().is_some_and(|terms| terms.list(size) == list);
        if !block.is_plain() || !mine || !lease.takes(size) {
            return false;
        }
        let (small, counted, requested) = self.end_tenancy(id);
        self.arena.marks.clear(id);
        if self.lease_out(lease, id) {
            lease.allowance.freed(small, counted, requested);
        } else {
            self.stats.blocks.freed(small, counted, requested);
            self.keep_or_merge(id);
        }
        true
    }
}
