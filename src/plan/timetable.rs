//! What comes when in a program that repeats itself, and where it is to lie.

use std::collections::HashMap;

use super::cycle::{CONTEXT, Period, Tenancy, context_of};
use super::item::{Item, Obstacle};
use super::packing::{Packing, comparisons, neighbours_below, pack};
use crate::ids::ListId;
use crate::mix::BuildMix;

/// Requests of a period at the most.
const MOST_BLOCKS: usize = 1 << 15;
/// Its blocks are compared so often to be packed, at the most: as often as 8,192 that stay for long, each with all others.
const MOST_COMPARISONS: usize = 1 << 26;
/// Periods without a request that is known, after which a program is another one.
const PATIENCE: usize = 4;

/// One request.
#[derive(Debug, Clone, Copy)]
struct Entry {
    key: u64,
    /// Where its block is to lie.
    offset: Option<usize>,
    /// Where the block below that lies.
    below: Option<usize>,
}

impl Entry {
    fn place(&self) -> Option<Place> {
        self.offset.map(|offset| Place {
            offset,
            below: self.below,
        })
    }
}

/// Where a block is to lie, offsets in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its own.
    pub offset: usize,
    /// That of the block below it, if one is to be there.
    pub below: Option<usize>,
}

/// See the module's text.
#[derive(Debug)]
pub struct Timetable {
    entries: Vec<Entry>,
    /// Where each block is to lie: offset and bytes.
    extents: Vec<(usize, usize)>,
    /// The list whose blocks it places.
    pub list: ListId,
    /// Where the last of them ends.
    pub height: usize,
    /// Bytes that they take.
    pub bytes: usize,
    /// The next request; `None` while the program does something else.
    next: Option<usize>,
    /// Where the table goes on after the last requests, by what these were.
    contexts: HashMap<u64, usize, BuildMix>,
    /// The last requests.
    last: [u64; CONTEXT],
    /// How many there were.
    seen: usize,
    /// Requests in a row that were not the expected ones.
    strange: usize,
}

impl Timetable {
    /// The table of a period, in which large blocks begin at multiples of `align` and none lies where an obstacle does.
    /// `None` where it has too many blocks, or none that it could place.
    pub fn new(period: &Period, obstacles: &[Obstacle], align: usize) -> Option<Self> {
        let tenancies = &period.tenancies;
        if tenancies.len() + obstacles.len() > MOST_BLOCKS {
            return None;
        }
        let list = Self::main_list(period)?;
        let mine = |at: usize| {
            let tenancy = &tenancies[at];
            let stay = tenancy.stay.filter(|&stay| stay > 0);
            let item = |stay| Item {
                from: at,
                stay,
                size: tenancy.size,
            };
            (tenancy.list == list && tenancy.size > 0)
                .then(|| stay.map(item))
                .flatten()
        };
        let items: Vec<Item> = (0..tenancies.len()).filter_map(mine).collect();
        if comparisons(&items, obstacles.len(), tenancies.len()) > MOST_COMPARISONS {
            return None;
        }
        let packing: Packing = pack(&items, obstacles, tenancies.len(), align);
        let below = neighbours_below(&items, obstacles, tenancies.len(), &packing);
        let mut entries: Vec<Entry> = tenancies
            .iter()
            .map(|tenancy| Entry {
                key: tenancy.key,
                offset: None,
                below: None,
            })
            .collect();
        for (at, item) in items.iter().enumerate() {
            let entry = &mut entries[item.from];
            entry.offset = Some(packing.offsets[at]);
            entry.below = below[at];
        }
        let sizes = items.iter().map(|item| item.size);
        let extents = packing.offsets.iter().copied().zip(sizes).collect();
        let mut contexts = HashMap::default();
        for at in 0..entries.len() {
            let before = (0..CONTEXT).map(|back| (at + back) % entries.len());
            let context = context_of(before.map(|at| entries[at].key));
            contexts.insert(context, (at + CONTEXT) % entries.len());
        }
        Some(Self {
            entries,
            extents,
            list,
            height: packing.height,
            bytes: packing.bytes,
            next: Some(0),
            contexts,
            last: [0; CONTEXT],
            seen: 0,
            strange: 0,
        })
    }

    /// Requests of a period.
    pub fn period(&self) -> usize {
        self.entries.len()
    }

    /// Where each block is to lie: offset and bytes.
    pub fn extents(&self) -> &[(usize, usize)] {
        &self.extents
    }

    /// The list of virtual segments that has most bytes of blocks which come and go.
    fn main_list(period: &Period) -> Option<ListId> {
        let mut bytes: HashMap<ListId, usize> = HashMap::new();
        let mine = |it: &&Tenancy| it.stay.is_some() && it.list.is_virtual();
        for tenancy in period.tenancies.iter().filter(mine) {
            *bytes.entry(tenancy.list).or_default() += tenancy.size;
        }
        bytes
            .into_iter()
            .max_by_key(|&(list, bytes)| (bytes, list))
            .map(|(list, _)| list)
    }

    /// The place for a request, if it is the next one.
    pub fn expects(&self, key: u64) -> Option<Place> {
        let next = &self.entries[self.next?];
        (next.key == key).then(|| next.place())?
    }

    /// The place for the next request.
    pub fn step(&mut self, key: u64) -> Option<Place> {
        self.last[self.seen % CONTEXT] = key;
        self.seen += 1;
        let expected = self.next.filter(|&next| self.entries[next].key == key);
        let Some(at) = expected else {
            self.strange += 1;
            let last = (self.seen..self.seen + CONTEXT).map(|at| self.last[at % CONTEXT]);
            self.next = self.contexts.get(&context_of(last)).copied();
            return None;
        };
        self.strange = 0;
        self.next = Some((at + 1) % self.entries.len());
        self.entries[at].place()
    }

    /// Whether the program has become another one.
    pub fn is_outdated(&self) -> bool {
        self.strange > PATIENCE * self.entries.len()
    }

    /// Whether the next request is the first one.
    pub fn begins(&self) -> bool {
        self.next == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: ListId = ListId(3);

    fn period(blocks: &[(u64, usize, Option<usize>)]) -> Period {
        let tenancy = |&(key, size, stay): &(u64, usize, Option<usize>)| Tenancy {
            key,
            list: LIST,
            size,
            stay,
        };
        Period {
            tenancies: blocks.iter().map(tenancy).collect(),
            moved: 0,
            times: 2,
            bytes: 0,
            change: 0,
        }
    }

    #[test]
    fn each_request_has_its_place_and_what_stays_has_none() {
        let blocks = [
            (7, 100, Some(2)),
            (8, 50, Some(1)),
            (9, 10, None),
            (7, 100, Some(1)),
        ];
        let mut table = Timetable::new(&period(&blocks), &[], 1).expect("blocks come and go");
        assert_eq!((table.height, table.list), (150, LIST));
        assert_eq!(table.extents(), [(0, 100), (100, 50), (0, 100)]);
        for _ in 0..3 {
            let places = [7, 8, 9, 7].map(|key| table.step(key));
            let place = |offset, below| Some(Place { offset, below });
            assert_eq!(
                places,
                [place(0, None), place(100, Some(0)), None, place(0, None)]
            );
            assert!(table.begins());
        }
    }

    #[test]
    fn what_lies_there_for_good_is_gone_around() {
        let obstacle = Obstacle {
            offset: 90,
            size: 20,
        };
        let period = period(&[(7, 100, Some(2)), (8, 50, Some(1))]);
        let mut table = Timetable::new(&period, &[obstacle], 1).expect("blocks come and go");
        assert_eq!((table.height, table.bytes), (210, 150));
        let place = |offset, below| Some(Place { offset, below });
        let places = [7, 8].map(|key| table.step(key));
        assert_eq!(places, [place(110, Some(90)), place(0, None)]);
    }

    #[test]
    fn after_something_else_it_goes_on_where_it_was_left() {
        let blocks: Vec<_> = (0..40).map(|at| (at, 100, Some(1))).collect();
        let mut table = Timetable::new(&period(&blocks), &[], 1).expect("blocks come and go");
        for key in 0..20 {
            assert!(table.step(key).is_some());
        }
        for key in 1000..1100 {
            assert_eq!(table.step(key), None);
        }
        assert!(!table.is_outdated());
        for key in 5..5 + CONTEXT as u64 {
            assert_eq!(table.step(key), None, "not known yet");
        }
        assert!(table.step(5 + CONTEXT as u64).is_some());
        for key in 1000..1200 {
            assert_eq!(table.step(key), None);
        }
        assert!(table.is_outdated());
    }

    #[test]
    fn nothing_is_planned_for_what_never_goes() {
        assert!(Timetable::new(&period(&[(7, 100, None)]), &[], 1).is_none());
    }

    #[test]
    fn many_blocks_are_planned_where_most_stay_briefly() {
        // How many, for what part of the period every second one of them stays, and whether there is a plan.
        for (count, part, planned) in [
            (12_000, 2, false),
            (12_000, 4, true),
            (16_000, 16, true),
            (1 << 15, 1 << 15, true),
            ((1 << 15) + 1, 1 << 15, false),
        ] {
            let stay = |at: u64| {
                if at.is_multiple_of(2) {
                    count / part
                } else {
                    1
                }
            };
            let blocks: Vec<_> = (0..count as u64)
                .map(|at| (at, 100, Some(stay(at))))
                .collect();
            let table = Timetable::new(&period(&blocks), &[], 1);
            assert_eq!(table.is_some(), planned, "{count} {part}");
        }
    }

    #[test]
    fn fixed_segments_are_not_planned() {
        let mut period = period(&[(7, 100, Some(1)), (8, 10, Some(1))]);
        period.tenancies[0].list = LIST.fixed();
        let table = Timetable::new(&period, &[], 1).expect("one is in a virtual segment");
        assert_eq!((table.list, table.height), (LIST, 10));
        period.tenancies[1].list = LIST.fixed();
        assert!(Timetable::new(&period, &[], 1).is_none());
    }

    #[test]
    fn the_list_with_most_bytes_is_planned_alone() {
        let mut period = period(&[(7, 100, Some(1)), (8, 50, Some(1)), (9, 60, Some(1))]);
        period.tenancies[0].list = ListId(7);
        let mut table = Timetable::new(&period, &[], 1).expect("blocks come and go");
        assert_eq!(table.list, LIST);
        let placed = [7, 8, 9].map(|key| table.step(key).is_some());
        assert_eq!(placed, [false, true, true]);
    }
}
