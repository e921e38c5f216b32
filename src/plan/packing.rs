//! Blocks of a program that repeats itself, packed: each gets an offset at which no other lies while it is alive, and
//! nothing else ever does.
//!
//! The largest go first, each into a gap that is left: fit by decreasing size, a heuristic known for dynamic storage
//! allocation. But *largest* means the class of a size, an octave or two; within a class those that stay longest go first:
//! what comes and goes then finds room between them, and room of one size is as good as of another. Of 164 packings of
//! recorded FSDP programs around obstacles the best of these ways needs at most 0.1 % more than what is alive at once in 74, at
//! most 1.4 % in all; by exact sizes, in three ways, at most 0.1 % in 6 (`docs/experiments-memory.md`, *Where sharded programs'
//! blocks are packed*).

use std::cmp::Reverse;

use super::item::{Item, Obstacle};
use super::placed::{Placed, compared};

/// Where items lie.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Packing {
    /// Offsets, bytes, in the order of the items.
    pub offsets: Vec<usize>,
    /// Where the last one ends.
    pub height: usize,
    /// Bytes that some item has at some time.
    pub bytes: usize,
}

/// Which of the gaps that hold an item it gets.
#[derive(Debug, Clone, Copy)]
enum Fit {
    Lowest,
    Largest,
}

/// Classes of sizes.
#[derive(Debug, Clone, Copy)]
enum Classes {
    /// Of one size each.
    Exact,
    /// From a power of two to the next.
    Octaves,
    /// From 4/3 of a power of two on.
    OctavesFromThird,
    /// From 8/5 of a power of two on.
    OctavesFromFifth,
    /// From a power of four to the next.
    TwoOctaves,
}

impl Classes {
    fn of(self, size: usize) -> usize {
        let octave = |size: usize| size.ilog2() as usize;
        match self {
            Self::Exact => size,
            Self::Octaves => octave(size),
            Self::OctavesFromThird => octave(size + size / 2),
            Self::OctavesFromFifth => octave(size + size / 4),
            Self::TwoOctaves => octave(size) / 2,
        }
    }
}

/// How much more than the least is good enough, so that nothing better is looked for: one part of it in this many.
pub const GOOD_ENOUGH: usize = 1024;

/// The ways that are tried, those first that found most between them. With sizes by half an octave or the smallest gap as well
/// little more is found.
const WAYS: [(Classes, Fit); 10] = [
    (Classes::OctavesFromThird, Fit::Lowest),
    (Classes::OctavesFromFifth, Fit::Largest),
    (Classes::TwoOctaves, Fit::Lowest),
    (Classes::TwoOctaves, Fit::Largest),
    (Classes::Octaves, Fit::Lowest),
    (Classes::OctavesFromThird, Fit::Largest),
    (Classes::OctavesFromFifth, Fit::Lowest),
    (Classes::Octaves, Fit::Largest),
    (Classes::Exact, Fit::Lowest),
    (Classes::Exact, Fit::Largest),
];
/// At least so many of them.
const FEWEST_WAYS: usize = 4;
/// Up to so many items and obstacles all ways are tried, of more fewer, so that it takes no longer: under a device's lock.
const TRIED_ALL_WAYS: usize = 2048;

/// Windows of time: of the whole period, and of a quarter, a sixteenth and a 64th of it, twice each.
const LEVELS: u32 = 4;
/// So few items are compared with all others.
const FEW: usize = 512;

/// In how many ways so many items and obstacles are packed at the most.
fn ways(count: usize) -> usize {
    let in_time = WAYS.len() * TRIED_ALL_WAYS.pow(2) / count.pow(2).max(1);
    in_time.clamp(FEWEST_WAYS, WAYS.len())
}

/// Packs items, at multiples of `align` (not 0), around obstacles. Takes time with the number of [`comparisons`], up to
/// [`TRIED_ALL_WAYS`] and again where no more than [`FEWEST_WAYS`] are tried.
pub fn pack(items: &[Item], obstacles: &[Obstacle], period: usize, align: usize) -> Packing {
    let least = most_alive(items, period);
    let mut best: Option<Packing> = None;
    for (classes, fit) in WAYS.into_iter().take(ways(items.len() + obstacles.len())) {
        let packing = pack_by(classes, fit, items, obstacles, period, align);
        let is_good = packing.bytes <= least + least / GOOD_ENOUGH;
        if best.as_ref().is_none_or(|best| packing.bytes < best.bytes) {
            best = Some(packing);
        }
        if is_good {
            break;
        }
    }
    best.unwrap_or_default()
}

/// Windows of how many lengths are worth keeping for so many items.
fn levels(items: usize) -> u32 {
    if items < FEW { 1 } else { LEVELS }
}

/// With how many others all items are compared, about, to be packed once.
pub fn comparisons(items: &[Item], obstacles: usize, period: usize) -> usize {
    let (all, levels) = (items.len() + obstacles, levels(items.len()));
    let each = items
        .iter()
        .map(|it| compared(it.stay, all, period, levels));
    each.sum()
}

fn pack_by(
    classes: Classes,
    fit: Fit,
    items: &[Item],
    obstacles: &[Obstacle],
    period: usize,
    align: usize,
) -> Packing {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&at| {
        let Item { from, stay, size } = items[at];
        (Reverse((classes.of(size), stay, size)), from)
    });
    let mut packing = Packing {
        offsets: vec![0; items.len()],
        height: 0,
        bytes: 0,
    };
    let mut placed = Placed::new(period, levels(items.len()));
    for it in obstacles {
        // It stays all the time.
        let (from, stay, size) = (0, period, it.size);
        placed.insert(*it, Item { from, stay, size });
    }
    for at in order {
        let item = items[at];
        let offset = gap(fit, placed.met(&item), item.size, align);
        packing.offsets[at] = offset;
        packing.height = packing.height.max(offset + item.size);
        let size = item.size;
        placed.insert(Obstacle { offset, size }, item);
    }
    packing.bytes = covered(items, &packing.offsets);
    packing
}

/// The start of the gap between what is taken (by offset) that holds `size` and fits as asked; behind all of it where
/// none does.
fn gap(fit: Fit, taken: impl IntoIterator<Item = Obstacle>, size: usize, align: usize) -> usize {
    let (mut free, mut best) = (0, None);
    for other in taken {
        let gap = other.offset.saturating_sub(free);
        let is_better = |(known, _): (usize, usize)| match fit {
            Fit::Lowest => false,
            Fit::Largest => gap > known,
        };
        if gap >= size && best.is_none_or(is_better) {
            best = Some((gap, free));
        }
        free = free.max((other.offset + other.size).next_multiple_of(align));
    }
    best.map_or(free, |(_, start)| start)
}

/// Bytes alive at once at the most.
fn most_alive(items: &[Item], period: usize) -> usize {
    let mut changes: Vec<i64> = vec![0; period + 1];
    for item in items {
        let (from, end, size) = (item.from, item.from + item.stay, item.size as i64);
        changes[from] += size;
        changes[end.min(period)] -= size;
        if end > period {
            changes[0] += size;
            changes[end - period] -= size;
        }
    }
    let levels = changes.iter().scan(0, |level, change| {
        *level += change;
        Some(*level)
    });
    levels.max().unwrap_or(0) as usize
}

/// Bytes at which one item or several lie.
fn covered(items: &[Item], offsets: &[usize]) -> usize {
    let mut extents: Vec<(usize, usize)> = offsets
        .iter()
        .zip(items)
        .map(|(&offset, item)| (offset, offset + item.size))
        .collect();
    extents.sort_unstable();
    let (mut bytes, mut reached) = (0, 0);
    for (start, end) in extents {
        bytes += end.saturating_sub(start.max(reached));
        reached = reached.max(end);
    }
    bytes
}

/// For each item where that begins which is below it with the nearest end, of the obstacles and of the items that are
/// there when it comes.
pub fn neighbours_below(
    items: &[Item],
    obstacles: &[Obstacle],
    period: usize,
    packing: &Packing,
) -> Vec<Option<usize>> {
    // By their ends. Obstacles are there all the time.
    let ends = items.iter().zip(&packing.offsets);
    let ends = ends.map(|(item, offset)| (offset + item.size, *offset, Some(item)));
    let obstacles = obstacles
        .iter()
        .map(|it| (it.offset + it.size, it.offset, None));
    let mut ends: Vec<(usize, usize, Option<&Item>)> = ends.chain(obstacles).collect();
    ends.sort_by_key(|&(end, ..)| end);
    let below = |at: usize| {
        let is_there = |it: &Item| it.is_there(items[at].from, period);
        let upto = ends.partition_point(|&(end, ..)| end <= packing.offsets[at]);
        let there = ends[..upto]
            .iter()
            .rev()
            .find(|(.., it)| it.is_none_or(is_there));
        there.map(|&(_, offset, _)| offset)
    };
    (0..items.len()).map(below).collect()
}

#[cfg(test)]
#[path = "packing_tests.rs"]
mod tests;
