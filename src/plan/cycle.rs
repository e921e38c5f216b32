//! Whether a program repeats itself: its large requests are noted, and compared with what came after the same requests
//! before.
//!
//! ```text
//! steps   a b c d e f  a b c d e f  a b c d e f
//!              s - - - - -^                         the block of s lived for 6 steps or less, or it stays
//!                                ^- at       ^- now     run = 12 = two periods
//! ```
//!
//! A long period is told of once it was repeated once, if its blocks were as large. Short ones may be loops within a step.
//! So may long ones, as where gradients of several batches are accumulated: who has found out asks for longer ones. The
//! requests between two rounds of the loop then lead to those of the step before, and so through the loop.

use std::collections::HashMap;
use std::hash::Hasher;

use crate::ids::ListId;
use crate::mix::{BuildMix, Mix};

/// Steps that tell where in its course a program is.
pub const CONTEXT: usize = 16;
/// Steps to be noted at the most; whoever has not repeated them by then is not waited for any longer.
pub const MOST_STEPS: usize = 1 << 15;

/// A period of so many requests is hardly a loop within a step.
pub const LONG: usize = 512;

/// One large request.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// What was asked for.
    key: u64,
    /// That of its block.
    list: ListId,
    /// Bytes of its block; 0 while it has none.
    size: usize,
    /// The number of steps when the block was freed; 0 while it lives.
    freed: usize,
    /// Pages that had moved by then.
    moved: u64,
    /// Bytes of noted blocks alive before it.
    level: usize,
}

/// A block of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tenancy {
    /// What was asked for.
    pub key: u64,
    /// The list that it belongs to.
    pub list: ListId,
    /// Bytes; 0 if nothing is known of it.
    pub size: usize,
    /// For how many steps it lives; `None` if it outlives a period.
    pub stay: Option<usize>,
}

/// What a program does again and again, from its next request on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Period {
    /// In the order of the requests.
    pub tenancies: Vec<Tenancy>,
    /// How often it was repeated.
    pub times: u64,
    /// Pages that moved meanwhile.
    pub moved: u64,
    /// Bytes of its blocks that come and go: the difference between the most and the least that are alive at once.
    pub bytes: usize,
    /// By how many more or fewer bytes are alive after it than before.
    pub change: usize,
}

impl Period {
    /// Pages that moved in each, on average.
    pub fn moved_each(&self) -> u64 {
        self.moved / self.times
    }
}

/// The requests so far.
#[derive(Debug, Default)]
pub struct Cycle {
    steps: Vec<Step>,
    /// Where the last steps were the same, by their hash: the latest position.
    seen: HashMap<u64, usize, BuildMix>,
    /// The position that the last step repeats.
    at: Option<usize>,
    /// Steps in a row that follow each other as before.
    run: usize,
    /// Live blocks by address: their steps.
    alive: HashMap<usize, usize, BuildMix>,
    /// Bytes of these.
    level: usize,
    /// Periods up to this one are not told of.
    loops: usize,
}

/// Names the last steps.
pub fn context_of(keys: impl Iterator<Item = u64>) -> u64 {
    let mut hash = Mix::default();
    keys.for_each(|key| {
        let before = hash.finish();
        hash.write_u64(key ^ before >> 17);
    });
    hash.finish()
}

impl Cycle {
    /// Looks for periods of more than `loops` requests.
    pub fn beyond(loops: usize) -> Self {
        Self {
            loops,
            ..Self::default()
        }
    }

    /// Notes a request. Returns the period once it was repeated twice (a long one once, if its blocks were as large), and
    /// each time it is repeated again.
    pub fn step(&mut self, key: u64, moved: u64) -> Option<Period> {
        let now = self.steps.len();
        let next = self.at.map(|at| at + 1);
        let next = next.filter(|&next| self.steps[next].key == key);
        self.steps.push(Step {
            key,
            list: ListId::NONE,
            size: 0,
            freed: 0,
            moved,
            level: self.level,
        });
        self.run = if next.is_some() { self.run + 1 } else { 0 };
        let seen = if now + 1 < CONTEXT {
            None
        } else {
            let last = &self.steps[now + 1 - CONTEXT..];
            let context = context_of(last.iter().map(|step| step.key));
            self.seen.insert(context, now)
        };
        self.at = next.or(seen);
        let period = Some(now - self.at?).filter(|&period| period > self.loops)?;
        let repeated = self.run >= 2 * period && self.run.is_multiple_of(period);
        let soon = period >= LONG && self.run == period && self.has_same_blocks(period);
        (repeated || soon).then(|| self.period(period))
    }

    /// Whether the last period's blocks are as large as those of the one before; the last request has none yet.
    fn has_same_blocks(&self, period: usize) -> bool {
        let (before, last) = self.steps[self.steps.len() - 2 * period..].split_at(period);
        let mut pairs = before.iter().zip(&last[..period - 1]);
        pairs.all(|(one, other)| (one.size, one.list) == (other.size, other.list))
    }

    /// Whether the block at an address came within the last `period` steps.
    pub fn came_within(&self, addr: usize, period: usize) -> bool {
        let step = self.alive.get(&addr);
        step.is_some_and(|&at| self.steps.len() - at <= period)
    }

    /// How many steps were noted.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// The block for the last request, if that was for `key`: another thread's may have come since.
    pub fn born(&mut self, key: u64, addr: usize, size: usize, list: ListId) {
        let at = self.steps.len().wrapping_sub(1);
        let last = self.steps.last_mut();
        if let Some(step) = last.filter(|step| step.key == key && step.size == 0) {
            (step.size, step.list) = (size, list);
            self.level += size;
            self.alive.insert(addr, at);
        }
    }

    /// A block was freed.
    pub fn freed(&mut self, addr: usize) {
        if let Some(at) = self.alive.remove(&addr) {
            self.steps[at].freed = self.steps.len();
            self.level -= self.steps[at].size;
        }
    }

    /// The period before the last one, whose blocks all have lived for a period by now.
    fn period(&self, period: usize) -> Period {
        let now = self.steps.len();
        let (first, last) = (now - 2 * period, now - period);
        let level = |at: usize| self.steps[at].level;
        let most = (last..now).map(level).max().unwrap_or(0);
        let least = (last..now).map(level).min().unwrap_or(0);
        let tenancy = |(at, step): (usize, &Step)| {
            let stay = step.freed.checked_sub(first + at);
            Tenancy {
                key: step.key,
                list: step.list,
                size: step.size,
                stay: stay.filter(|&stay| stay <= period),
            }
        };
        let steps = self.steps[first..last].iter().enumerate();
        let moved = self.steps[now - 1].moved - self.steps[now - 1 - self.run].moved;
        Period {
            tenancies: steps.map(tenancy).collect(),
            times: (self.run / period) as u64,
            moved,
            bytes: most - least,
            change: level(now - 1).abs_diff(level(last - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: ListId = ListId(3);

    /// Requests of a program, of which each block lives for `stay` steps.
    fn run(cycle: &mut Cycle, keys: &[u64], stay: usize, moved: &mut u64) -> Option<Period> {
        let mut found = None;
        for &key in keys {
            *moved += 1;
            found = found.or(cycle.step(key, *moved));
            let now = cycle.steps.len();
            cycle.born(key, now * 4096, 4096, LIST);
            if now > stay {
                cycle.freed((now - stay) * 4096);
            }
        }
        found
    }

    #[test]
    fn a_period_is_found_once_it_was_repeated_twice() {
        let keys: Vec<u64> = (0..20).map(|at| at % 7 + at / 10).collect();
        let (mut cycle, mut moved) = (Cycle::default(), 0);
        assert_eq!(run(&mut cycle, &[99, 98, 97], 5, &mut moved), None);
        // The first repetition is known as one after some steps.
        for _ in 0..3 {
            assert_eq!(run(&mut cycle, &keys, 5, &mut moved), None);
        }
        let found = run(&mut cycle, &keys, 5, &mut moved).expect("repeated");
        assert_eq!((found.moved, found.times, found.moved_each()), (40, 2, 20));
        let first = keys.iter().position(|&key| key == found.tenancies[0].key);
        assert!(first.is_some());
        assert_eq!(found.tenancies.len(), keys.len());
        // Its beginning is the next request: the last one of the third run came 15 steps after a context was known.
        let mut expected = keys.clone();
        expected.rotate_left(CONTEXT);
        let named: Vec<u64> = found.tenancies.iter().map(|it| it.key).collect();
        assert_eq!(named, expected);
        let whole = Tenancy {
            key: found.tenancies[0].key,
            list: LIST,
            size: 4096,
            // It was there while five others came.
            stay: Some(6),
        };
        assert_eq!(found.tenancies[0], whole);
    }

    #[test]
    fn a_long_period_is_found_once_it_was_repeated_once_with_blocks_as_large() {
        // Requests of a period, which one's block is of another size the first time, in which round it is found.
        for (len, other, expected) in [
            (LONG, None, 2),
            (LONG, Some(CONTEXT + 1), 3),
            (LONG, Some(LONG - 1), 3),
            (LONG - 1, None, 3),
        ] {
            let mut cycle = Cycle::default();
            let found = (0..4).find(|round| {
                let is_other = |at: usize| *round == 0 && other == Some(at);
                let sizes = (0..len).map(|at| if is_other(at) { 512 } else { 4096 });
                let steps = sizes.enumerate().map(|(at, size)| {
                    let period = cycle.step(at as u64, 0);
                    let now = cycle.steps.len();
                    cycle.born(at as u64, now * 4096, size, LIST);
                    if now > 5 {
                        cycle.freed((now - 5) * 4096);
                    }
                    period
                });
                steps.flatten().count() > 0
            });
            assert_eq!(found, Some(expected), "{len} {other:?}");
        }
    }

    #[test]
    fn a_loop_within_a_step_is_passed_over_for_the_step() {
        let step = || {
            let batch = (0..LONG as u64).cycle().take(4 * LONG);
            batch.chain(9000..9000 + 2 * CONTEXT as u64)
        };
        let len = step().count();
        for (loops, expected) in [(0, LONG), (LONG - 1, LONG), (LONG, len), (len, 0)] {
            let (mut cycle, mut moved) = (Cycle::beyond(loops), 0);
            let keys: Vec<u64> = step().chain(step()).chain(step()).collect();
            let found = run(&mut cycle, &keys, 5, &mut moved);
            let found = found.map_or(0, |it| it.tenancies.len());
            assert_eq!(found, expected, "{loops}");
        }
    }

    #[test]
    fn what_outlives_a_period_is_told_apart() {
        let keys: Vec<u64> = (0..20).collect();
        let (mut cycle, mut moved) = (Cycle::default(), 0);
        let found = (0..5).find_map(|_| run(&mut cycle, &keys, 20, &mut moved));
        let found = found.expect("repeated");
        assert!(found.tenancies.iter().all(|it| it.stay.is_none()));
    }

    #[test]
    fn a_request_that_differs_begins_it_anew() {
        let keys: Vec<u64> = (0..20).collect();
        let (mut cycle, mut moved) = (Cycle::default(), 0);
        for round in 0..20 {
            assert_eq!(run(&mut cycle, &keys, 5, &mut moved), None, "{round}");
            if round % 2 == 1 {
                assert_eq!(run(&mut cycle, &[1000 + round], 5, &mut moved), None);
            }
        }
    }
}
