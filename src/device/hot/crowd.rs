//! Whether threads wait for each other's use of a device's lock so often that each is to have a lease, and whether that is
//! of use. Pure.

/// Frees among which waits for the lock count.
const WINDOW: u64 = 1 << 18;
/// Waits among them from which on threads get leases. A thread that waits does so for long (see [`sync`](crate::sync)):
/// there are one or two in a millisecond at the most.
const PATIENCE: u32 = 2;
/// The most waits, where leases were of no use.
const MOST_PATIENCE: u32 = 1 << 5;
/// Frees by leases that make up for what it takes to lease the blocks again.
const WORTH: u64 = 1 << 10;
/// So many ends of leases that were of no use are made up for by others, at the most.
const MOST_CREDIT: u64 = 8;
/// Terms that one lease serves while no other does, after which its thread is alone.
const ALONE: u32 = 3;

/// How crowded the lock is.
#[derive(Debug)]
pub(in crate::device) struct Crowd {
    /// Threads that had to wait for the lock.
    waits: u32,
    /// The tick since which they count.
    since: u64,
    /// Waits from which on blocks are leased.
    patience: u32,
    /// How often leases may end soon before they are of no use.
    credit: u64,
    /// The slot whose lease ended its term last, and how many it did in a row.
    last: (usize, u32),
    /// There are to be leases whatever comes of them: for tests.
    pub always: bool,
}

impl Default for Crowd {
    fn default() -> Self {
        Self {
            waits: 0,
            since: 0,
            patience: PATIENCE,
            credit: 0,
            last: (0, 0),
            always: false,
        }
    }
}

impl Crowd {
    /// Counts a thread that waited. Whether there were many.
    pub fn waited(&mut self, tick: u64) -> bool {
        if tick.wrapping_sub(self.since) > WINDOW {
            (self.since, self.waits) = (tick, 0);
        }
        self.waits += 1;
        let many = self.waits >= self.patience;
        if many {
            self.waits = 0;
        }
        many
    }

    /// Leases ended after so many frees. Whether there are to be others at once.
    pub fn learn(&mut self, frees: u64) -> bool {
        self.credit = (self.credit + frees / WORTH).min(MOST_CREDIT);
        let worth = self.credit > 0;
        if worth {
            self.credit -= 1;
            self.patience = PATIENCE;
        } else {
            self.patience = (self.patience * 2).min(MOST_PATIENCE);
        }
        worth
    }

    /// Whether no lease but this one came to the end of a term for some time.
    pub fn is_alone(&mut self, slot: usize) -> bool {
        let (last, times) = self.last;
        let times = if last == slot { times + 1 } else { 1 };
        self.last = (slot, times);
        times >= ALONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_count_if_they_are_near_each_other() {
        let mut crowd = Crowd::default();
        assert!(!crowd.waited(0));
        assert!(!crowd.waited(WINDOW + 1), "the first one is too old");
        assert!(crowd.waited(2 * WINDOW));
        assert!(!crowd.waited(2 * WINDOW), "counted anew");
    }

    #[test]
    fn leases_that_end_at_once_are_given_seldom() {
        let mut crowd = Crowd::default();
        assert!(!crowd.learn(WORTH - 1));
        assert!(!crowd.learn(0));
        let waits = (1..).find(|_| crowd.waited(0));
        assert_eq!(waits, Some(4 * PATIENCE));
        for _ in 0..20 {
            crowd.learn(0);
        }
        assert_eq!((1..).find(|_| crowd.waited(0)), Some(MOST_PATIENCE));
        // One that is of use makes up for some that are not.
        assert!(crowd.learn(3 * WORTH));
        assert_eq!((1..).find(|_| crowd.waited(0)), Some(PATIENCE));
        assert!(crowd.learn(0) && crowd.learn(0));
        assert!(!crowd.learn(0));
        assert!(crowd.learn(1000 * WORTH));
        let more = (1..).find(|_| !crowd.learn(0));
        assert_eq!(more, Some(MOST_CREDIT));
    }

    #[test]
    fn who_ends_terms_while_nobody_else_does_is_alone() {
        let mut crowd = Crowd::default();
        assert!(!crowd.is_alone(0) && !crowd.is_alone(0));
        assert!(!crowd.is_alone(1) && !crowd.is_alone(1));
        assert!(crowd.is_alone(1));
    }
}
