//! Blocks of a program that repeats itself, packed: each gets an offset at which no other lies while it is alive.
//!
//! The largest go first, each into the smallest gap that is left. That is the heuristic known for dynamic storage
//! allocation as best fit by decreasing size; on the periods of recorded FSDP programs it needs 1.000 times what is alive
//! at once.

/// A block that is alive for a while in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// When it comes, in [0, period).
    pub from: usize,
    /// For how long it stays, in (0, period].
    pub stay: usize,
    /// Bytes, not 0.
    pub size: usize,
}

impl Item {
    /// Whether both are alive at some time. Time goes round.
    fn meets(&self, other: &Self, period: usize) -> bool {
        let after = |one: &Self, other: &Self| (other.from + period - one.from) % period;
        after(self, other) < self.stay || after(other, self) < other.stay
    }

    /// Whether it is alive just before `time`.
    fn is_there(&self, time: usize, period: usize) -> bool {
        let since = (time + period - self.from) % period;
        0 < since && since < self.stay
    }
}

/// Where items lie.
#[derive(Debug, Default)]
pub struct Packing {
    /// Offsets, bytes, in the order of the items.
    pub offsets: Vec<usize>,
    /// Where the last one ends.
    pub height: usize,
}

/// Packs items, at multiples of `align` (not 0). Takes time with the square of their number.
pub fn pack(items: &[Item], period: usize, align: usize) -> Packing {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&at| (std::cmp::Reverse(items[at].size), items[at].from));
    let mut packing = Packing {
        offsets: vec![0; items.len()],
        height: 0,
    };
    let (mut placed, mut taken): (Vec<usize>, Vec<(usize, usize)>) = (Vec::new(), Vec::new());
    for at in order {
        let item = &items[at];
        let others = placed
            .iter()
            .filter(|&&other| item.meets(&items[other], period));
        taken.clear();
        taken.extend(others.map(|&other| (packing.offsets[other], items[other].size)));
        taken.sort_unstable();
        let offset = smallest_gap(&taken, item.size, align);
        packing.offsets[at] = offset;
        packing.height = packing.height.max(offset + item.size);
        placed.push(at);
    }
    packing
}

/// The start of the smallest gap between what is taken (offset, size; by offset) that holds `size`; behind all of it
/// where none does.
fn smallest_gap(taken: &[(usize, usize)], size: usize, align: usize) -> usize {
    let (mut free, mut best) = (0, None);
    for &(offset, other) in taken {
        let gap = offset.saturating_sub(free);
        if gap >= size && best.is_none_or(|(least, _)| gap < least) {
            best = Some((gap, free));
        }
        free = free.max((offset + other).next_multiple_of(align));
    }
    best.map_or(free, |(_, start)| start)
}

/// For each item the one below it whose end is nearest, of those that are there when it comes.
pub fn neighbours_below(items: &[Item], period: usize, packing: &Packing) -> Vec<Option<usize>> {
    let end = |at: usize| packing.offsets[at] + items[at].size;
    let below = |at: usize| {
        let there = (0..items.len()).filter(|&other| {
            end(other) <= packing.offsets[at] && items[other].is_there(items[at].from, period)
        });
        there.max_by_key(|&other| end(other))
    };
    (0..items.len()).map(below).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn item(from: usize, stay: usize, size: usize) -> Item {
        Item { from, stay, size }
    }

    #[test]
    fn blocks_that_never_meet_share_a_place() {
        let packing = pack(&[item(0, 5, 300), item(5, 5, 200), item(9, 1, 100)], 10, 1);
        assert_eq!((packing.offsets, packing.height), (vec![0, 0, 200], 300));
    }

    #[test]
    fn what_stays_over_the_end_of_a_period_meets_what_comes_first() {
        let packing = pack(&[item(8, 4, 300), item(1, 2, 200), item(2, 6, 100)], 10, 1);
        assert_eq!((packing.offsets, packing.height), (vec![0, 300, 0], 500));
    }

    #[test]
    fn the_smallest_gap_counts_and_offsets_are_aligned() {
        let taken = [(0, 10), (100, 20), (140, 10), (300, 1)];
        assert_eq!(smallest_gap(&taken, 20, 1), 120);
        assert_eq!(smallest_gap(&taken, 70, 32), 160);
        assert_eq!(smallest_gap(&taken, 200, 32), 320);
        // One that reaches over others.
        assert_eq!(smallest_gap(&[(0, 100), (10, 20)], 5, 1), 100);
    }

    /// Who is alive before each item comes.
    fn alive(items: &[Item], period: usize, at: usize) -> Vec<usize> {
        let mut now = vec![false; items.len()];
        // Two periods, as time goes round.
        for time in 0..2 * period {
            for (id, item) in items.iter().enumerate() {
                if (item.from + item.stay) % period == time % period {
                    now[id] = false;
                }
            }
            if time >= period && time % period == items[at].from {
                break;
            }
            for (id, item) in items.iter().enumerate() {
                if item.from == time % period {
                    now[id] = true;
                }
            }
        }
        (0..items.len()).filter(|&id| now[id] && id != at).collect()
    }

    proptest! {
        #[test]
        fn no_two_blocks_lie_in_the_same_place_at_once(
            drawn in prop::collection::vec((1usize..40, 1usize..50), 1..40), align in 1usize..9
        ) {
            // One comes at each time.
            let period = drawn.len();
            let items: Vec<Item> = drawn
                .iter()
                .enumerate()
                .map(|(from, &(stay, size))| item(from, stay.min(period), size))
                .collect();
            let packing = pack(&items, period, align);
            let below = neighbours_below(&items, period, &packing);
            let place = |id: usize| packing.offsets[id]..packing.offsets[id] + items[id].size;
            for (at, under) in below.iter().enumerate() {
                let mine = place(at);
                prop_assert!(mine.start % align == 0 && mine.end <= packing.height);
                let mut nearest = None;
                for other in alive(&items, period, at) {
                    let theirs = place(other);
                    prop_assert!(theirs.end <= mine.start || mine.end <= theirs.start);
                    if theirs.end <= mine.start {
                        nearest = nearest.max(Some(theirs.end));
                    }
                }
                prop_assert_eq!(under.map(|other| place(other).end), nearest);
            }
        }
    }
}
