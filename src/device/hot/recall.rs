//! What is leased comes back, all of it or what is missing elsewhere. Pure but for the locks of leases, which are held for
//! moments.

use crate::block::{BlockState, Keep, NO_USES};
use crate::device::state::State;
use crate::ids::{BlockId, ListId};
use crate::lease::{Lease, Returned};

impl State {
    /// Leases a block that is live and plain, or was kept. False if the lease does not take it.
    pub(super) fn lease_out(&mut self, lease: &mut Lease, id: BlockId) -> bool {
        let block = &mut self.arena[id];
        let lent = Returned {
            block: id,
            size: block.size,
            requested: block.requested,
            slack: block.slack,
            frees: 0,
        };
        let taken = lease.lend(block.addr, lent);
        if taken {
            debug_assert_eq!((block.flags, block.uses), (0, NO_USES));
            block.state = BlockState::Leased;
            self.arena.marks.clear(id);
        }
        taken
    }

    /// Takes the rooms of all leases but the one whose slot is locked.
    #[cold]
    pub(super) fn collect_rooms(&mut self, but: usize) {
        let leases = self.threads.leases.clone();
        for (_, slot) in leases.slots().enumerate().filter(|(at, _)| *at != but) {
            slot.with(|lease| self.stats.blocks.collect(&mut lease.allowance));
        }
    }

    /// Merges free blocks of leases, the thread's own first, until a block of `size` bytes is there, if that comes about.
    #[cold]
    pub(super) fn gather(
        &mut self,
        lease: &mut Lease,
        number: usize,
        list: ListId,
        size: usize,
    ) -> bool {
        if self.gather_from(lease, list, size) {
            return true;
        }
        let leases = self.threads.leases.clone();
        leases
            .slots()
            .enumerate()
            .filter(|(at, _)| *at != number)
            .any(|(_, slot)| slot.with(|lease| self.gather_from(lease, list, size)))
    }

    /// The same from one lease: see [`Self::merge_from`].
    fn gather_from(&mut self, lease: &mut Lease, list: ListId, size: usize) -> bool {
        let Some(terms) = lease.terms().copied() else {
            return false;
        };
        let found = self.merge_from(list, size, |state, size| {
            let of_list = terms.list(size) == list;
            let returned = of_list.then(|| lease.give_up(size)).flatten()?;
            state.catch_up_on(returned);
            Some(returned.block)
        });
        found.is_some()
    }

    /// Has everything back that is leased, and the leases end.
    #[cold]
    #[inline(never)]
    pub(super) fn recall(&mut self) {
        let (leases, mut frees) = (self.threads.leases.clone(), 0);
        for slot in leases.slots() {
            frees += slot.with(|lease| {
                self.stats.blocks.collect(&mut lease.allowance);
                lease.end(|returned| self.bring_back(returned))
            });
        }
        self.tick += frees;
        (self.threads.leasing, self.attention) = (false, false);
        if !self.threads.crowd.learn(frees) {
            self.end_crowd();
        }
    }

    /// A block is leased no more. Returns its generation.
    pub(super) fn bring_back(&mut self, returned: Returned) -> u16 {
        let Returned { block: id, .. } = returned;
        self.catch_up_on(returned);
        let block = &mut self.arena[id];
        let (addr, list, generation) = (block.addr, block.list, block.generation);
        if returned.requested != 0 {
            block.state = BlockState::Live;
            self.mark(id, addr, list.is_small());
        } else {
            self.keep_or_merge(id);
        }
        generation
    }

    /// What became of a block on lease.
    fn catch_up_on(&mut self, returned: Returned) {
        let block = &mut self.arena[returned.block];
        debug_assert_eq!(block.state, BlockState::Leased);
        debug_assert_eq!(block.size, returned.size);
        block.generation = block.generation.wrapping_add(returned.frees);
        block.requested = returned.requested;
        block.slack = returned.slack;
        // Freed after whatever time somebody read before the free, which did not move the clock.
        self.tick += u64::from(returned.requested == 0);
    }

    /// A free block whose entry is in the address map still, and that is in no list.
    pub(super) fn keep_or_merge(&mut self, id: BlockId) {
        let (list, size) = (self.arena[id].list, self.arena[id].size);
        if self.cache.quick.keep(&mut self.arena, list, size, id) != Keep::Kept {
            self.keep_no_more(id);
        }
    }
}
