//! Offline placement: blocks whose lifetimes are known in advance, packed into as little memory as
//! can be found.
//!
//! The least height is NP-hard to find. [`lower_bound`] is the peak of live bytes, below which nothing
//! fits; [`pack`] searches for a good placement for a given time: blocks are placed one by one at the
//! lowest address free over their whole life, in several orders, and the best order is then varied,
//! moving blocks that reach to the top forward (a local search with restarts). On the benchmark of
//! google/minimalloc that ends 7 to 24 % above what is known to be enough: a yardstick, no solver.

use std::time::{Duration, Instant};

use crate::synthetic::Random;

/// A block with a lifetime: alive from `lower` until before `upper`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffer {
    /// First moment.
    pub lower: u64,
    /// First moment after it; greater than `lower`.
    pub upper: u64,
    /// Size, in any unit; greater than 0.
    pub size: u64,
}

/// A placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Memory needed: the highest end of a block.
    pub height: u64,
    /// Where each block begins.
    pub offsets: Vec<u64>,
}

/// The most that is alive at one moment.
pub fn lower_bound(buffers: &[Buffer]) -> u64 {
    let mut changes: Vec<(u64, bool, u64)> = Vec::with_capacity(2 * buffers.len());
    for buffer in buffers {
        changes.push((buffer.lower, true, buffer.size));
        changes.push((buffer.upper, false, buffer.size));
    }
    // At one moment, ends come first.
    changes.sort_unstable();
    let (mut live, mut peak) = (0u64, 0);
    for (_, begins, size) in changes {
        if begins {
            live += size;
            peak = peak.max(live);
        } else {
            live -= size;
        }
    }
    peak
}

/// The first overlap of a placement in both time and place, if there is one.
pub fn conflict(buffers: &[Buffer], offsets: &[u64]) -> Option<(usize, usize)> {
    let ends = |index: usize| offsets[index] + buffers[index].size;
    for (i, one) in buffers.iter().enumerate() {
        for (j, other) in buffers.iter().enumerate().skip(i + 1) {
            let in_time = one.lower < other.upper && other.lower < one.upper;
            if in_time && offsets[i] < ends(j) && offsets[j] < ends(i) {
                return Some((i, j));
            }
        }
    }
    None
}

/// The best placement found within `budget`; earlier when one reaches the lower bound.
pub fn pack(buffers: &[Buffer], budget: Duration, seed: u64) -> Placement {
    let begin = Instant::now();
    let bound = lower_bound(buffers);
    let packer = Packer::new(buffers);
    let (order, mut best) = packer.first_orders();
    let mut random = Random::new(seed);
    let mut current = (packer.excess(&best, bound), order);
    let mut kept = current.clone();
    let mut idle = 0u32;
    while best.height > bound && begin.elapsed() < budget && buffers.len() > 1 {
        let candidate = packer.vary(&current.1, &best, &mut random);
        let placed = packer.place(&candidate);
        let excess = packer.excess(&placed, bound);
        idle += 1;
        // Slightly worse ones are gone on from too, so that the search leaves a hollow.
        if excess <= current.0 + current.0 / TOLERANCE {
            current = (excess, candidate);
        }
        if placed.height < best.height {
            best = placed;
            idle = 0;
        }
        if current.0 < kept.0 {
            kept.clone_from(&current);
            idle = 0;
        } else if idle >= RESTART {
            current.clone_from(&kept);
            idle = 0;
        }
    }
    best
}

/// Attempts without an improvement after which the search goes back to the best order.
const RESTART: u32 = 1_000;
/// A candidate may be worse than its origin by this part.
const TOLERANCE: u64 = 200;

struct Packer<'a> {
    buffers: &'a [Buffer],
    /// For each block those that are alive together with it.
    neighbours: Vec<Vec<u32>>,
}

impl<'a> Packer<'a> {
    fn new(buffers: &'a [Buffer]) -> Self {
        let together = |i: usize, j: usize| {
            let (one, other) = (&buffers[i], &buffers[j]);
            i != j && one.lower < other.upper && other.lower < one.upper
        };
        let neighbours = (0..buffers.len())
            .map(|i| {
                let found = (0..buffers.len()).filter(|j| together(i, *j));
                found.map(|j| j as u32).collect()
            })
            .collect();
        Self {
            buffers,
            neighbours,
        }
    }

    /// Places blocks in this order, each at the lowest address that is free over its whole life.
    fn place(&self, order: &[u32]) -> Placement {
        const NOWHERE: u64 = u64::MAX;
        let mut offsets = vec![NOWHERE; self.buffers.len()];
        let mut taken: Vec<(u64, u64)> = Vec::new();
        let mut height = 0;
        for &index in order {
            let index = index as usize;
            taken.clear();
            for &other in &self.neighbours[index] {
                let offset = offsets[other as usize];
                if offset != NOWHERE {
                    taken.push((offset, offset + self.buffers[other as usize].size));
                }
            }
            taken.sort_unstable();
            let size = self.buffers[index].size;
            let mut offset = 0;
            for &(first, end) in &taken {
                if first >= offset && first - offset >= size {
                    break;
                }
                offset = offset.max(end);
            }
            offsets[index] = offset;
            height = height.max(offset + size);
        }
        Placement { height, offsets }
    }

    /// How far blocks reach above the bound, summed up with their squares: a measure that tells
    /// placements of the same height apart.
    fn excess(&self, placed: &Placement, bound: u64) -> u64 {
        let ends = placed.offsets.iter().zip(self.buffers);
        let above = ends.map(|(offset, it)| (offset + it.size).saturating_sub(bound));
        let scale = (bound / 1000).max(1);
        above.map(|above| (above / scale) * (above / scale)).sum()
    }

    /// The best of the usual orders: large first, long first, large area first, early first, most
    /// contended first, and from the ground up.
    fn first_orders(&self) -> (Vec<u32>, Placement) {
        type Key = fn(&Buffer) -> (u128, u128);
        let keys: [Key; 5] = [
            |b| (b.size.into(), (b.upper - b.lower).into()),
            |b| ((b.upper - b.lower).into(), b.size.into()),
            |b| (u128::from(b.size) * u128::from(b.upper - b.lower), 0),
            |b| (u128::from(u64::MAX - b.lower), b.size.into()),
            |b| (b.upper.into(), b.size.into()),
        ];
        let all: Vec<u32> = (0..self.buffers.len() as u32).collect();
        let mut best = (all.clone(), self.place(&all));
        let mut consider = |order: Vec<u32>| {
            let placed = self.place(&order);
            if placed.height < best.1.height {
                best = (order, placed);
            }
        };
        for key in keys {
            let mut order = all.clone();
            order.sort_by_key(|&index| std::cmp::Reverse(key(&self.buffers[index as usize])));
            consider(order);
        }
        let pressure: Vec<u64> = (0..self.buffers.len())
            .map(|index| {
                let around = self.neighbours[index].iter();
                let rest: u64 = around.map(|&other| self.buffers[other as usize].size).sum();
                rest + self.buffers[index].size
            })
            .collect();
        let mut order = all.clone();
        order.sort_by_key(|&index| std::cmp::Reverse(pressure[index as usize]));
        consider(order);
        let choices: [Key; 3] = [
            |b| ((b.upper - b.lower).into(), b.size.into()),
            |b| (b.size.into(), (b.upper - b.lower).into()),
            |b| (u128::from(b.size) * u128::from(b.upper - b.lower), 0),
        ];
        for choice in choices {
            consider(self.skyline(choice));
        }
        best
    }

    /// The order in which blocks are placed when the ground is filled from the lowest place up: of the
    /// blocks whose life fits into the lowest stretch of time, the one with the greatest key; where none
    /// fits, the stretch is raised to its lower neighbour.
    fn skyline(&self, key: impl Fn(&Buffer) -> (u128, u128)) -> Vec<u32> {
        let first = self.buffers.iter().map(|it| it.lower).min().unwrap_or(0);
        let last = self.buffers.iter().map(|it| it.upper).max().unwrap_or(0);
        // Stretches of time and their heights, in order and without gaps.
        let mut sky = vec![(first, last, 0u64)];
        let mut left: Vec<u32> = (0..self.buffers.len() as u32).collect();
        let mut order = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let lowest = (0..sky.len()).min_by_key(|&at| sky[at].2).unwrap_or(0);
            let (begin, end, height) = sky[lowest];
            let fits = |index: u32| {
                let it = &self.buffers[index as usize];
                begin <= it.lower && it.upper <= end
            };
            let chosen = (0..left.len())
                .filter(|&at| fits(left[at]))
                .max_by_key(|&at| key(&self.buffers[left[at] as usize]));
            let parts = match chosen {
                Some(at) => {
                    let index = left.swap_remove(at);
                    order.push(index);
                    let it = &self.buffers[index as usize];
                    vec![
                        (begin, it.lower, height),
                        (it.lower, it.upper, height + it.size),
                        (it.upper, end, height),
                    ]
                }
                None => {
                    let before = lowest.checked_sub(1).map_or(u64::MAX, |at| sky[at].2);
                    let after = sky.get(lowest + 1).map_or(u64::MAX, |it| it.2);
                    vec![(begin, end, before.min(after))]
                }
            };
            sky.splice(lowest..=lowest, parts);
            sky.retain(|(begin, end, _)| begin < end);
            sky.dedup_by(|next, kept| {
                let same = next.2 == kept.2;
                if same {
                    kept.1 = next.1;
                }
                same
            });
        }
        order
    }

    /// A variation: either two blocks change places, or a block, preferably one that reaches to the
    /// top of the best placement, moves forward.
    fn vary(&self, order: &[u32], best: &Placement, random: &mut Random) -> Vec<u32> {
        let count = order.len() as u64;
        let mut order = order.to_vec();
        for _ in 0..=random.below(3) {
            if random.below(2) == 0 {
                order.swap(random.below(count) as usize, random.below(count) as usize);
                continue;
            }
            let mut from = random.below(count) as usize;
            if random.below(2) == 0 {
                let top = |index: u32| {
                    let index = index as usize;
                    best.offsets[index] + self.buffers[index].size == best.height
                };
                from = order.iter().position(|&index| top(index)).unwrap_or(from);
            }
            let to = random.below(from as u64 + 1) as usize;
            order[to..=from].rotate_right(1);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::Case;

    fn buffer(lower: u64, upper: u64, size: u64) -> Buffer {
        Buffer { lower, upper, size }
    }

    /// The published example of google/minimalloc: fits in 12.
    fn example() -> Vec<Buffer> {
        vec![
            buffer(0, 3, 4),
            buffer(3, 9, 4),
            buffer(0, 9, 4),
            buffer(9, 21, 4),
            buffer(0, 21, 4),
        ]
    }

    #[test]
    fn the_bound_is_the_most_alive_and_ends_come_before_beginnings() {
        assert_eq!(lower_bound(&example()), 12);
        assert_eq!(lower_bound(&[buffer(0, 5, 7), buffer(5, 6, 7)]), 7);
        assert_eq!(lower_bound(&[]), 0);
    }

    #[test]
    fn a_conflict_is_found_and_its_absence_too() {
        let buffers = [buffer(0, 2, 4), buffer(1, 3, 4), buffer(2, 4, 4)];
        assert_eq!(conflict(&buffers, &[0, 3, 0]), Some((0, 1)));
        assert_eq!(conflict(&buffers, &[0, 4, 0]), None);
        assert_eq!(conflict(&buffers, &[0, 4, 7]), Some((1, 2)));
    }

    #[test]
    fn the_published_example_is_packed_into_its_capacity() {
        let buffers = example();
        let placed = pack(&buffers, Duration::from_secs(5), 1);
        assert_eq!(placed.height, 12);
        assert_eq!(conflict(&buffers, &placed.offsets), None);
    }

    #[test]
    fn the_search_improves_on_what_it_begins_with_and_places_without_conflict() {
        // Fills a rectangle without a gap: no simple order finds that.
        let buffers = Case::cut("cut", 80, 1000, 4096, 2).buffers;
        let first = pack(&buffers, Duration::ZERO, 1);
        let found = pack(&buffers, Duration::from_secs(1), 1);
        assert_eq!(conflict(&buffers, &found.offsets), None);
        let end = |index: usize| found.offsets[index] + buffers[index].size;
        assert_eq!((0..buffers.len()).map(end).max(), Some(found.height));
        assert!(found.height >= lower_bound(&buffers));
        assert!(
            found.height < first.height,
            "{} not below {}",
            found.height,
            first.height
        );
    }

    #[test]
    fn nothing_and_one_block_are_packed() {
        assert_eq!(pack(&[], Duration::ZERO, 1).height, 0);
        assert_eq!(pack(&[buffer(3, 4, 9)], Duration::ZERO, 1).height, 9);
    }
}
