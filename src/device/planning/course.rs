//! Whether a program's large requests are noted, or known. Pure.
//!
//! ```text
//! Off --a part of what is held has moved--> Noting --repeated, moves are worth it--> Following
//!  ^----------- never repeated, or not worth it -/                                               |
//!  ^----------- another program, the range is gone, or as much moves as before ------------------/
//! ```
//!
//! Where as much moves as before, the period may be a loop within a step that does something else as well, as where gradients
//! of several batches are accumulated: those of the first stay where the plan wants blocks of the next. Then longer ones are
//! looked for.

use std::ops::Range;

use super::site::Site;
use crate::device::state::{Request, State};
use crate::ids::{ListId, PoolId, SegmentId};
use crate::plan::{Cycle, LONG, Period, Place, Timetable};

/// A plan is made once this part of what it takes to move has moved without it, in periods in a row: programs that train run
/// for many more, those whose shapes change for few.
const PAYBACK: usize = 8;
/// Of what is held this part must come and go in a period: what goes on within a step is none. Half as much of
/// either is enough in a period of [`LONG`] requests.
const WHOLE: usize = 4;
/// Of what comes and goes this part stays at the most: a loop over layers that keeps what it makes is no period.
const MOST_CHANGE: usize = 32;
/// Periods until memory has come to where it is to lie, at first or after something else.
const SETTLING: u32 = 3;
/// Periods in which the driver may go on being called for a plan in a range in use: that takes a little more memory than one
/// in a range of its own.
pub(super) const MOST_RESTLESS: u32 = 64;
/// Tries in vain at the most.
const MOST_TRIES: u32 = 16;

/// So many times as many requests are noted where a step with a loop in it is looked for.
const MORE_BEYOND_LOOPS: usize = 4;

/// See the module's text.
#[derive(Debug, Default)]
pub(in crate::device) enum Course {
    #[default]
    Off,
    Noting(Box<Cycle>),
    Following(Box<Followed>),
}

/// A plan, and what became of it.
#[derive(Debug)]
pub(in crate::device) struct Followed {
    table: Timetable,
    /// Pages that moved in a period without it.
    before: u64,
    /// Pages that had moved when the last period began.
    moved: u64,
    /// Periods in a row in which as much moved as before.
    unsettled: u32,
    /// Of these, those that the driver was called for.
    called: i64,
    /// Periods in a row in which it was.
    restless: u32,
    /// By how many pages fewer moved than would have without it.
    spared: i64,
}

/// What is known of programs that repeat themselves.
#[derive(Debug, Default)]
pub(in crate::device) struct Planning {
    course: Course,
    /// Pages that had moved when nothing was noted any more.
    moved: u64,
    /// How often it was in vain: each time twice as much has to move before the next try.
    in_vain: u32,
    /// Requests of a period whose plan never settled: a loop within a step, maybe, so longer ones are looked for. 0: any.
    loops: usize,
    /// Where the blocks of the plan that is followed lie.
    site: Option<Site>,
    /// Whether plans are made in ranges of their own alone.
    pub(super) apart: bool,
    /// Ranges that were reserved for plans.
    pub(super) ranges: Vec<SegmentId>,
    /// Requests are always noted, and each plan is worth having: for tests.
    eager: bool,
}

/// What is to be done for a large request.
pub(super) enum Next {
    Nothing,
    /// A plan can be made.
    Plan(Period),
    /// There is a place for its block.
    At(Place),
}

impl Planning {
    /// Whether all large requests are to be told of.
    #[inline]
    pub fn is_on(&self) -> bool {
        !matches!(self.course, Course::Off)
    }

    /// Whether blocks lie where a plan has them.
    pub fn is_followed(&self) -> bool {
        self.has_table() || self.eager
    }

    /// Whether it is known which request comes next, and where its block is to lie.
    pub fn has_table(&self) -> bool {
        matches!(self.course, Course::Following(_))
    }

    /// Whether what becomes of all blocks is to be told of, too.
    #[inline]
    pub fn is_noting(&self) -> bool {
        matches!(self.course, Course::Noting(_))
    }

    /// A large request was served.
    pub fn born(&mut self, request: &Request, addr: usize, size: usize, list: ListId) {
        if let Course::Noting(cycle) = &mut self.course {
            cycle.born(key_of(request), addr, size, list);
        }
    }

    /// Whether a live block came within the last `period` large requests, while these are noted.
    pub(super) fn came_within(&self, addr: usize, period: usize) -> bool {
        matches!(&self.course, Course::Noting(cycle) if cycle.came_within(addr, period))
    }

    /// A block was freed.
    pub fn freed(&mut self, addr: usize) {
        if let Course::Noting(cycle) = &mut self.course {
            cycle.freed(addr);
        }
    }

    /// A range is gone, as after `empty_cache`: what comes to its addresses is another one.
    pub fn forget_range(&mut self, id: SegmentId) {
        self.site = self.site.filter(|site| site.segment != id);
        self.ranges.retain(|&range| range != id);
    }

    /// Addresses at which a plan has blocks; empty without one.
    pub fn addresses(&self) -> Range<usize> {
        match (&self.course, self.site) {
            (Course::Following(followed), Some(site)) => {
                site.addr..site.addr + followed.table.height
            }
            _ => 0..0,
        }
    }

    /// So many pages of `page_size` bytes have moved by now. Once so many bytes have it is worth to know whether the program
    /// repeats itself.
    pub fn note_moved(&mut self, moved: u64, page_size: usize, worth: usize) {
        if self.is_on() || self.in_vain >= MOST_TRIES {
            return;
        }
        let bytes = (moved - self.moved) * page_size as u64;
        if bytes >= (worth as u64) << self.in_vain {
            self.course = Course::Noting(Box::new(Cycle::beyond(self.loops)));
        }
    }

    /// Whether the plan that is followed lies in a range that was not reserved for plans.
    fn is_in_use(&self) -> bool {
        let site = self.site.map(|site| site.segment);
        site.is_some_and(|site| !self.ranges.contains(&site))
    }

    /// See [`DeviceAllocator::plan_eagerly`](crate::device::DeviceAllocator::plan_eagerly).
    pub(super) fn be_eager(&mut self) {
        self.eager = true;
        self.end(self.moved, false);
    }

    fn end(&mut self, moved: u64, in_vain: bool) {
        self.course = if self.eager {
            Course::Noting(Box::default())
        } else {
            Course::Off
        };
        self.moved = moved;
        if in_vain {
            self.in_vain += 1;
            self.loops = 0;
        }
    }
}

/// What a request is known by.
fn key_of(request: &Request) -> u64 {
    request.requested as u64 ^ (request.stream.0 as u64).rotate_left(40)
}

impl State {
    /// Of the pages that moved so far those that the driver was called for, less idle ones that came back without a call.
    fn pages_called(&self) -> i64 {
        self.ladder.pages_moved() as i64 - self.ladder.pages_revived as i64
    }

    /// Tells of a request.
    pub(super) fn next_step(&mut self, request: &Request) -> Next {
        if request.small || request.pool != PoolId::DEFAULT || !request.virtual_memory {
            return Next::Nothing;
        }
        let moved = self.ladder.pages_moved();
        if !self.may_plan() {
            self.planning.end(moved, false);
            return Next::Nothing;
        }
        let (called, in_use) = (self.pages_called(), self.planning.is_in_use());
        let longer = self.planning.loops > 0;
        let most = self.most_noted() * if longer { MORE_BEYOND_LOOPS } else { 1 };
        match &mut self.planning.course {
            Course::Off => Next::Nothing,
            Course::Noting(cycle) => {
                let period = cycle.step(key_of(request), moved);
                if cycle.len() >= most {
                    self.planning.end(moved, true);
                    return Next::Nothing;
                }
                period.map_or(Next::Nothing, Next::Plan)
            }
            Course::Following(followed) => {
                if followed.table.begins() && !followed.pays(moved, called) {
                    self.give_up_loop();
                    return Next::Nothing;
                }
                if followed.table.is_outdated() {
                    self.give_up_plan();
                    return Next::Nothing;
                }
                if in_use && followed.restless > MOST_RESTLESS {
                    self.planning.apart = true;
                    self.give_up_plan();
                    return Next::Nothing;
                }
                let place = followed.table.step(key_of(request));
                let mine = followed.table.list == request.list;
                place.filter(|_| mine).map_or(Next::Nothing, Next::At)
            }
        }
    }

    /// The place for a request, if the plan that is followed expects it next and it is not the first of a period.
    pub(super) fn expected_place(&self, request: &Request) -> Option<Place> {
        let Course::Following(followed) = &self.planning.course else {
            return None;
        };
        let table = &followed.table;
        let place = table.expects(key_of(request)).filter(|_| !table.begins());
        place.filter(|_| table.list == request.list)
    }

    /// Such a request is served at its place.
    pub(in crate::device) fn note_expected(&mut self, request: &Request) {
        if let Course::Following(followed) = &mut self.planning.course {
            followed.table.step(key_of(request));
        }
    }

    /// The plan for a period, if it is worth having.
    pub(super) fn plan(&self, period: &Period, page_size: usize) -> Option<Timetable> {
        let halved = 1 + usize::from(period.tenancies.len() >= LONG);
        let moved = period.moved as usize * page_size;
        let pays = moved >= period.bytes / (PAYBACK * halved);
        let whole = period.bytes >= self.reserved() / (WHOLE * halved)
            && period.change <= period.bytes / MOST_CHANGE;
        // Sharded programs repeat themselves in each step, and a step moves much. Others have some batches of one shape in a row.
        let certain = period.times > 1 || self.uses_several_streams();
        let worth = pays && whole && certain && !self.moves_fade() || self.planning.eager;
        let table =
            worth.then(|| Timetable::new(period, &[], self.settings.base_addr_aligned_size))?;
        // Blocks may have come from a pool for overflow.
        table.filter(|table| self.lists[table.list].pool == PoolId::DEFAULT)
    }

    /// From the next request on blocks lie where the plan has them.
    pub(super) fn follow(&mut self, table: Timetable, site: Site, before: u64) {
        let (moved, called) = (self.ladder.pages_moved(), self.pages_called());
        self.planning.site = Some(site);
        self.planning.course = Course::Following(Box::new(Followed {
            table,
            before,
            moved,
            unsettled: 0,
            called,
            restless: 0,
            // The first period begins at once.
            spared: -(before as i64),
        }));
    }

    /// No range can be had for the plan.
    pub(super) fn note_no_range(&mut self) {
        let moved = self.ladder.pages_moved();
        self.planning.end(moved, true);
    }

    /// The plan can't be followed any more. It was in vain unless it spared more than it took to get there.
    pub(super) fn give_up_plan(&mut self) {
        if let Course::Following(followed) = &self.planning.course {
            let in_vain = followed.spared < 0;
            self.planning.end(self.ladder.pages_moved(), in_vain);
        }
    }

    /// The plan never settles. Where it was in vain its period may be a loop within a step that does something else, too: then
    /// that is looked for.
    fn give_up_loop(&mut self) {
        let Course::Following(followed) = &self.planning.course else {
            return;
        };
        if followed.spared >= 0 {
            return self.give_up_plan();
        }
        let loops = followed.table.period();
        self.planning.end(self.ladder.pages_moved(), false);
        self.planning.loops = loops;
    }

    /// Where the blocks of the plan that is followed lie; `None` where that is gone.
    pub(super) fn site(&self) -> Option<Site> {
        match &self.planning.course {
            Course::Following(followed) => {
                let site = self.planning.site;
                site.filter(|&site| self.is_in_list(site, followed.table.list))
            }
            _ => None,
        }
    }
}

impl Followed {
    /// A period begins. Whether less moves than without the plan, or may soon.
    fn pays(&mut self, moved: u64, called: i64) -> bool {
        let last = moved - std::mem::replace(&mut self.moved, moved);
        self.spared += self.before as i64 - last as i64;
        let is_called = called > std::mem::replace(&mut self.called, called);
        self.restless = if is_called { self.restless + 1 } else { 0 };
        self.unsettled = if last > self.before / 2 {
            self.unsettled + 1
        } else {
            0
        };
        self.unsettled <= SETTLING
    }
}

#[cfg(test)]
#[path = "course_tests.rs"]
mod tests;
