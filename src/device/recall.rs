//! What is leased comes back, all of it or what is missing elsewhere. Pure but for the locks of leases, which are held for
//! moments.

use super::state::State;
use crate::block::{BlockState, Keep, NO_USES};
use crate::ids::{BlockId, ListId};
use crate::lease::{Lease, Returned};
use crate::size::{MIN_BLOCK_SIZE, MOST_STEPPED, SMALL_SIZE, kept_size, kept_step};

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
        let leases = self.leases.clone();
        for (_, slot) in leases.slots().enumerate().filter(|(at, _)| *at != but) {
            self.stats.blocks.collect(&mut slot.lock().allowance);
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
        let leases = self.leases.clone();
        leases
            .slots()
            .enumerate()
            .filter(|(at, _)| *at != number)
            .any(|(_, slot)| self.gather_from(&mut slot.lock(), list, size))
    }

    /// The same from one lease: the smallest block that is larger, or those of about the size.
    fn gather_from(&mut self, lease: &mut Lease, list: ListId, size: usize) -> bool {
        let of_list = lease.terms().is_some_and(|terms| terms.list(size) == list);
        if !of_list || size > MOST_STEPPED {
            return false;
        }
        let most = if list.is_small() {
            SMALL_SIZE
        } else {
            MOST_STEPPED
        };
        let mut larger = size;
        while larger < most {
            larger = kept_size(larger + MIN_BLOCK_SIZE);
            if let Some(returned) = lease.give_up(larger) {
                self.bring_back_merged(returned);
                return true;
            }
        }
        let least = if list.is_small() {
            size / 2
        } else {
            (size / 2).max(SMALL_SIZE)
        };
        let mut smaller = size;
        while smaller > least {
            while let Some(returned) = lease.give_up(smaller) {
                self.bring_back_merged(returned);
            }
            if self.best_virtual(list, size).is_some() {
                return true;
            }
            smaller -= kept_step(smaller);
        }
        false
    }

    /// Takes a block back that the lease has handed out, but has no room for. False if it has not.
    pub(super) fn take_back_leased(&mut self, lease: &mut Lease, addr: usize) -> bool {
        lease.put_all(addr, |returned| {
            self.bring_back(returned);
        })
    }

    /// Has everything back that is leased, and the leases end.
    #[cold]
    #[inline(never)]
    pub(super) fn recall(&mut self) {
        let (leases, mut frees) = (self.leases.clone(), 0);
        for slot in leases.slots() {
            let mut lease = slot.lock();
            self.stats.blocks.collect(&mut lease.allowance);
            frees += lease.end(|returned| self.bring_back(returned));
        }
        self.tick += frees;
        (self.leasing, self.attention) = (false, false);
        if !self.crowd.learn(frees) {
            self.end_crowd();
        }
    }

    /// A block is leased no more. Returns its generation.
    fn bring_back(&mut self, returned: Returned) -> u16 {
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

    /// The same for a free block that is not to be kept.
    fn bring_back_merged(&mut self, returned: Returned) {
        self.catch_up_on(returned);
        self.keep_no_more(returned.block);
    }

    /// What became of a block on lease.
    fn catch_up_on(&mut self, returned: Returned) {
        let block = &mut self.arena[returned.block];
        debug_assert_eq!(block.state, BlockState::Leased);
        debug_assert_eq!(block.size, returned.size);
        block.generation = block.generation.wrapping_add(returned.frees);
        block.requested = returned.requested;
        block.slack = returned.slack;
    }

    /// A free block whose entry is in the address map still, and that is in no list.
    pub(super) fn keep_or_merge(&mut self, id: BlockId) {
        let (list, size) = (self.arena[id].list, self.arena[id].size);
        if self.quick.keep(&mut self.arena, list, size, id) != Keep::Kept {
            self.keep_no_more(id);
        }
    }
}
