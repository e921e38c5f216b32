//! Which addresses a plan's blocks get: those of a range in use that has most of their memory already, with its blocks
//! that stay as obstacles, or a range of their own. Pure.

use std::cmp::Reverse;

use super::course::MOST_RESTLESS;
use crate::block::BlockState;
use crate::device::state::State;
use crate::ids::{ListId, SegmentId};
use crate::page::PageTable;
use crate::plan::{GOOD_ENOUGH, Obstacle, Period, Timetable};
use crate::segment::Segment;

/// Ranges reserved for plans at one time at the most.
const MOST_RANGES: usize = 4;
/// Of the addresses that are more than enough so many eighths are left out, of those without memory: the more the fewer
/// pages are missing, and the harder it is to pack what is left.
const LEFT_OUT: [usize; 5] = [7, 6, 5, 3, 0];

/// Addresses for a plan's blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Site {
    pub segment: SegmentId,
    pub addr: usize,
    pub size: usize,
}

impl Site {
    fn new(id: SegmentId, segment: &Segment) -> Self {
        Self {
            segment: id,
            addr: segment.addr,
            size: segment.size,
        }
    }
}

impl State {
    /// A range in use for the blocks of a period, and where they lie in it, if that moves a quarter fewer pages than `fresh`
    /// does, the table for a range of their own. Packing takes up to 1 s for each try, mostly less than 0.1,
    /// under the lock.
    pub(super) fn site_in_use(
        &self,
        fresh: &Timetable,
        period: &Period,
        page_size: usize,
    ) -> Option<(Site, Timetable)> {
        if self.planning.apart {
            return None;
        }
        let ranges = self.segments.iter().filter_map(|(id, segment)| {
            let pages = segment.pages.as_ref()?;
            let site = Site::new(id, segment);
            let fits = pages.page_size() == page_size && site.size >= fresh.height;
            (fits && self.is_in_list(site, fresh.list)).then_some((site, segment, pages))
        });
        let (site, segment, pages) = ranges.max_by_key(|(_, _, pages)| pages.mapped_bytes())?;
        if pages.mapped_bytes() < fresh.bytes / 4 {
            return None;
        }
        let (stays, holes) = self.obstacles(segment, period.tenancies.len());
        let taken = stays.iter().map(|it| it.size).sum::<usize>() + fresh.bytes;
        let spare = site.size.saturating_sub(taken);
        let least = fresh.bytes.div_ceil(page_size);
        let mut obstacles = Vec::new();
        let mut best = None;
        for eighths in LEFT_OUT {
            obstacles.clone_from(&stays);
            let mut left = spare / 8 * eighths;
            for hole in &holes {
                if let Some(rest) = left.checked_sub(hole.size) {
                    left = rest;
                    obstacles.push(*hole);
                }
            }
            let table = Timetable::new(period, &obstacles, self.settings.base_addr_aligned_size);
            let Some(table) = table.filter(|table| table.height <= site.size) else {
                continue;
            };
            let needed = Needed::by(&table, site, &stays, pages);
            let moves = needed.moves(least);
            if best.as_ref().is_none_or(|(fewest, _)| moves < *fewest) {
                best = Some((moves, table));
            }
            if needed.beyond(least) <= least / GOOD_ENOUGH {
                break;
            }
        }
        let (moves, table) = best?;
        (moves <= least / 4 * 3).then_some((site, table))
    }

    /// Blocks of a range that a period's requests did not bring, which stay, and addresses without memory, the longest
    /// first.
    fn obstacles(&self, segment: &Segment, period: usize) -> (Vec<Obstacle>, Vec<Obstacle>) {
        let (mut stays, mut holes) = (Vec::new(), Vec::new());
        let mut next = Some(segment.first);
        while let Some(id) = next {
            let block = &self.arena[id];
            let obstacle = Obstacle {
                offset: block.addr - segment.addr,
                size: block.size,
            };
            match block.state {
                BlockState::Live if !self.planning.came_within(block.addr, period) => {
                    stays.push(obstacle);
                }
                BlockState::Unmapped => holes.push(obstacle),
                _ => (),
            }
            next = block.next.some();
        }
        holes.sort_unstable_by_key(|it| (Reverse(it.size), it.offset));
        (stays, holes)
    }

    /// Whether a range is one of a list's.
    pub(super) fn is_in_list(&self, site: Site, list: ListId) -> bool {
        let segment = self.segments.get(site.segment);
        segment.is_some_and(|segment| self.arena[segment.first].list == list)
    }

    /// A range that was reserved for another plan and is long enough.
    pub(super) fn site_of_a_former_plan(&self, list: ListId, height: usize) -> Option<Site> {
        let ranges = self.planning.ranges.iter();
        let sites = ranges.filter_map(|&id| Some(Site::new(id, self.segments.get(id)?)));
        let mut sites = sites.filter(|&site| site.size >= height && self.is_in_list(site, list));
        sites.next_back()
    }

    /// Whether another range may be reserved.
    pub(super) fn may_reserve_site(&self) -> bool {
        self.planning.ranges.len() < MOST_RANGES
    }

    /// A range was reserved.
    pub(super) fn take_range(&mut self, segment: SegmentId) {
        self.planning.ranges.push(segment);
    }
}

/// Pages that a table needs, besides those of what stays.
#[derive(Debug, PartialEq, Eq)]
struct Needed {
    all: usize,
    /// Those without memory.
    missing: usize,
    /// With so many nothing moves once all blocks are in their places: those with memory, needed or not.
    there: usize,
}

impl Needed {
    /// By how many they are more than the least, and more than what is there.
    fn beyond(&self, least: usize) -> usize {
        self.all.saturating_sub(least.max(self.there))
    }

    /// How many move: those without memory once, those beyond the least in each of the periods that such a plan may go on for.
    fn moves(&self, least: usize) -> usize {
        self.missing + self.beyond(least) * MOST_RESTLESS as usize
    }

    fn by(table: &Timetable, site: Site, stays: &[Obstacle], pages: &PageTable) -> Self {
        let touched = |offset, size| pages.touching(site.addr + offset, site.addr + offset + size);
        let none = vec![false; site.size.div_ceil(pages.page_size())];
        let (mut needed, mut kept) = (none.clone(), none);
        for &(offset, size) in table.extents() {
            needed[touched(offset, size)].fill(true);
        }
        for it in stays {
            kept[touched(it.offset, it.size)].fill(true);
        }
        let mut found = Self {
            all: 0,
            missing: 0,
            there: 0,
        };
        for page in (0..needed.len()).filter(|&page| !kept[page]) {
            let is_mapped = pages.is_mapped(page);
            found.all += usize::from(needed[page]);
            found.missing += usize::from(needed[page] && !is_mapped);
            found.there += usize::from(is_mapped);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::driver::PhysicalHandle;

    const PAGE: usize = 1 << 21;

    #[test]
    fn ranges_that_are_gone_make_room_for_others() {
        let mut state = State::new(Settings::parse("").expect("valid"));
        for id in 0..MOST_RANGES {
            assert!(state.may_reserve_site());
            state.take_range(SegmentId(id as u32));
        }
        assert!(!state.may_reserve_site());
        state.planning.forget_range(SegmentId(1));
        assert!(state.may_reserve_site());
    }

    #[test]
    fn pages_of_what_stays_are_there_anyway_and_pages_with_memory_need_none() {
        let site = Site {
            segment: SegmentId(0),
            addr: 64 * PAGE,
            size: 16 * PAGE,
        };
        let mut pages = PageTable::new(site.addr, PAGE);
        for page in [0, 1, 5] {
            pages.set(page, PhysicalHandle(7 + page), page as u32);
        }
        let tenancy = |key, size| crate::plan::Tenancy {
            key,
            list: ListId(3),
            size,
            stay: Some(2),
        };
        let period = Period {
            tenancies: vec![tenancy(1, 4 * PAGE), tenancy(2, 2 * PAGE)],
            moved: 0,
            times: 2,
            bytes: 0,
            change: 0,
        };
        let stays = [Obstacle {
            offset: PAGE,
            size: PAGE / 2,
        }];
        let table = Timetable::new(&period, &stays, 512).expect("blocks come and go");
        // From 1.5 on: the first half page is that of what stays.
        let mut extents = table.extents().to_vec();
        extents.sort_unstable();
        assert_eq!(
            extents,
            [(PAGE * 3 / 2, 4 * PAGE), (PAGE * 11 / 2, 2 * PAGE)]
        );
        let needed = Needed::by(&table, site, &stays, &pages);
        let expected = Needed {
            all: 6,
            missing: 5,
            there: 2,
        };
        assert_eq!(needed, expected);
    }

    #[test]
    fn pages_beyond_the_least_move_again_and_again_unless_they_are_there() {
        let needed = |all, there| Needed {
            all,
            missing: 10,
            there,
        };
        let again = MOST_RESTLESS as usize;
        for (needed, moves) in [
            (needed(100, 0), 10),
            (needed(99, 0), 10),
            (needed(103, 0), 10 + 3 * again),
            (needed(103, 102), 10 + again),
            (needed(103, 103), 10),
        ] {
            assert_eq!(needed.moves(100), moves, "{needed:?}");
        }
    }
}
