//! A part of the room below the peaks that is somebody's own: what is handed out within it moves no peak, whatever others
//! do with theirs.

use super::block_counters::{BlockCounters, Lane};

/// What a block counts for: itself, its bytes, those asked for.
const COUNTED: usize = 3;
const _: () = assert!(Lane::RequestedBytes as usize == COUNTED - 1);

/// Blocks handed out and given back that [`BlockCounters`] doesn't know of yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowance {
    /// By pool (0 small, 1 large). Never negative.
    room: [[i64; COUNTED]; 2],
    /// Of the sum over both pools. Never negative.
    total: [i64; COUNTED],
    /// What was given back.
    freed: [[i64; COUNTED]; 2],
}

impl Allowance {
    /// A block is handed out, if there is room for it; otherwise false, and nothing changes.
    #[inline]
    pub fn handed_out(&mut self, small: bool, size: i64, requested: i64) -> bool {
        let (room, total) = (&mut self.room[usize::from(!small)], &mut self.total);
        let amounts = [1, size, requested];
        let fits = |at: usize| room[at].min(total[at]) >= amounts[at];
        if !(fits(0) & fits(1) & fits(2)) {
            return false;
        }
        for at in 0..COUNTED {
            room[at] -= amounts[at];
            total[at] -= amounts[at];
        }
        true
    }

    /// A block is given back, of which nothing is active any more.
    #[inline]
    pub fn freed(&mut self, small: bool, size: i64, requested: i64) {
        let pool = usize::from(!small);
        for (at, amount) in [1, size, requested].into_iter().enumerate() {
            self.room[pool][at] += amount;
            self.total[at] += amount;
            self.freed[pool][at] += amount;
        }
    }
}

impl BlockCounters {
    /// Takes one part in `of` of the room for an allowance that has none. Until [`Self::collect`] values are too high by what it took,
    /// accumulated ones lack what it counted, and no block may be handed out for which there is no
    /// [`Self::has_all_room`], nor one wait.
    pub fn lend(&mut self, to: &mut Allowance, of: i64) {
        debug_assert_eq!(*to, Allowance::default());
        for at in 0..COUNTED {
            for pool in 0..2 {
                to.room[pool][at] = self.room[pool].0[at] / of;
                self.room[pool].0[at] -= to.room[pool][at];
            }
            to.total[at] = self.total_room.0[at] / of;
            self.total_room.0[at] -= to.total[at];
        }
    }

    /// Counts what an allowance counted, and takes what is left of it back.
    pub fn collect(&mut self, from: &mut Allowance) {
        let from = std::mem::take(from);
        for at in 0..COUNTED {
            for pool in 0..2 {
                self.room[pool].0[at] += from.room[pool][at];
                self.freed[pool].0[at] += from.freed[pool][at];
            }
            self.total_room.0[at] += from.total[at];
        }
    }

    /// Whether [`Self::handed_out`] with these moves no peak.
    pub fn has_all_room(&self, small: bool, size: i64, requested: i64) -> bool {
        let (room, total) = (self.room[usize::from(!small)].0, self.total_room.0);
        let amounts = [1, size, requested];
        (0..COUNTED).all(|at| room[at].min(total[at]) >= amounts[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIB: i64 = 1024;

    #[test]
    fn no_more_is_handed_out_than_there_is_room_for() {
        let mut counters = BlockCounters::default();
        for _ in 0..4 {
            counters.handed_out(true, KIB, 1000);
        }
        for _ in 0..4 {
            counters.freed(true, KIB, 1000);
        }
        let mut allowance = Allowance::default();
        counters.lend(&mut allowance, 2);
        assert!(!allowance.handed_out(false, KIB, 1000), "the other pool");
        assert!(!allowance.handed_out(true, 3 * KIB, 1000), "bytes");
        assert!(!allowance.handed_out(true, KIB, 2001), "bytes asked for");
        assert!(allowance.handed_out(true, KIB, 1000));
        assert!(allowance.handed_out(true, KIB, 1000));
        assert!(!allowance.handed_out(true, KIB, 1000), "blocks");
        assert!(counters.has_all_room(true, 2 * KIB, 2000));
        assert!(!counters.has_all_room(true, 2 * KIB + 1, 2000));
        assert!(!counters.has_all_room(true, 2 * KIB, 2001));
        assert!(!counters.has_all_room(false, KIB, 1000));
        allowance.freed(true, KIB, 1000);
        assert!(allowance.handed_out(true, KIB, 1000));
    }

    proptest! {
        /// Two allowances and the counters themselves serve requests where they can; where none can, all is collected. Then
        /// every figure is that of counters which saw each call.
        #[test]
        fn nobody_sees_that_it_was_lent(ops in prop::collection::vec((0usize..3, any::<bool>(), any::<bool>(), 1i64..50), 1..300)) {
            let (mut counters, mut plain) = (BlockCounters::default(), BlockCounters::default());
            let mut lent = [Allowance::default(); 2];
            let mut live = Vec::new();
            counters.lend(&mut lent[0], 1);
            for (who, small, free, amount) in ops {
                if free && !live.is_empty() {
                    let (small, amount): (bool, i64) = live.swap_remove(amount as usize % live.len());
                    plain.freed(small, amount * 512, amount);
                    match who {
                        2 => counters.freed(small, amount * 512, amount),
                        _ => lent[who].freed(small, amount * 512, amount),
                    }
                    continue;
                }
                live.push((small, amount));
                plain.handed_out(small, amount * 512, amount);
                let served = match who {
                    2 => {
                        let room = counters.has_all_room(small, amount * 512, amount);
                        if room {
                            counters.handed_out(small, amount * 512, amount);
                        }
                        room
                    }
                    _ => lent[who].handed_out(small, amount * 512, amount),
                };
                if !served {
                    lent.iter_mut().for_each(|lent| counters.collect(lent));
                    counters.handed_out(small, amount * 512, amount);
                    for lane in [Lane::Allocation, Lane::AllocatedBytes, Lane::RequestedBytes] {
                        prop_assert_eq!(counters.parts(lane), plain.parts(lane));
                        prop_assert_eq!(counters.stat(lane), plain.stat(lane));
                    }
                    lent.iter_mut().for_each(|lent| counters.lend(lent, 2));
                }
            }
            lent.iter_mut().for_each(|lent| counters.collect(lent));
            for lane in [Lane::Allocation, Lane::AllocatedBytes, Lane::RequestedBytes] {
                prop_assert_eq!(counters.parts(lane), plain.parts(lane));
            }
            prop_assert_eq!(counters.active_parts(true), plain.active_parts(true));
        }
    }
}
