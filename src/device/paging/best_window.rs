//! Windows for a request compared: which is best, and which runs of addresses can't have a better one. Pure.

use crate::ids::BlockId;

/// Where to map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::device) struct Window {
    /// The block that holds the start: free or unmapped.
    pub first: BlockId,
    /// Where it starts; inside an unmapped block on a page boundary.
    pub start: usize,
    /// Bytes from the start on; more than requested where the start is not aligned as configured.
    pub size: usize,
    /// Pages that must get memory.
    pub pages: usize,
    /// Driver calls that takes; less than one a page where mappings were left behind.
    pub calls: usize,
    /// Unmapped addresses are left on both sides.
    pub apart: bool,
    /// Its pages have another size than such a request's.
    pub other_pages: bool,
}

impl Window {
    /// A window that was not chosen among others.
    pub(in crate::device) fn at(first: BlockId, start: usize, size: usize) -> Self {
        Self {
            first,
            start,
            size,
            pages: 0,
            calls: 0,
            apart: true,
            other_pages: false,
        }
    }

    /// Windows of less are better. Memory is tight where what can move is scarcer than time.
    fn cost(&self, tight: bool) -> (usize, usize, bool) {
        let worth = worth_of_page(tight);
        // Gaps cost pages where windows meet.
        let meets = tight == self.apart;
        (self.pages * worth + self.calls, self.pages, meets)
    }
}

/// What a window is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Any,
    /// Not for memory that is moved, since a window with gaps is there too.
    Dense,
    /// For memory that is moved alone: gaps are left on both sides.
    Apart,
}

/// The best of two kinds.
#[derive(Debug, Default)]
pub(in crate::device) struct Windows {
    /// Leaves no gaps.
    pub dense: Option<Window>,
    /// For memory that is moved: in unmapped addresses alone it keeps a gap on its left where there is room.
    /// Only looked for while the device is full.
    pub moved: Option<Window>,
}

/// The best windows so far. Of equal ones that of the lower run counts, and of one run's the first.
#[derive(Debug)]
pub(super) struct Best {
    tight: bool,
    /// Where the run that is looked at starts.
    pub run: usize,
    pub dense: Option<(Window, usize)>,
    moved: Option<(Window, usize)>,
}

impl Best {
    pub fn new(tight: bool) -> Self {
        Self {
            tight,
            run: 0,
            dense: None,
            moved: None,
        }
    }

    /// What a page counts for.
    pub fn worth(&self) -> usize {
        worth_of_page(self.tight)
    }

    pub fn offer(&mut self, window: Window, purpose: Purpose) {
        let (tight, run) = (self.tight, self.run);
        let better = |best: Option<(Window, usize)>| {
            best.is_none_or(|(best, at)| (window.cost(tight), run) < (best.cost(tight), at))
        };
        if purpose != Purpose::Apart && better(self.dense) {
            self.dense = Some((window, run));
        }
        if purpose != Purpose::Dense && better(self.moved) {
            self.moved = Some((window, run));
        }
    }

    /// Whether a window of a run may be better than one of these.
    pub fn may_beat(&self, run: &Run) -> bool {
        let may = |best: Option<(Window, usize)>| {
            best.is_none_or(|(best, _)| run.least_cost <= best.cost(self.tight).0)
        };
        may(self.dense) || may(self.moved)
    }

    pub fn windows(self) -> Windows {
        Windows {
            dense: self.dense.map(|(window, _)| window),
            moved: self.moved.map(|(window, _)| window),
        }
    }
}

/// Free and unmapped blocks side by side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub first: BlockId,
    pub addr: usize,
    /// No window costs less: all that is mapped lies in it, and no call is needed for the rest.
    pub least_cost: usize,
}

/// What a page counts for, in driver calls: the more of them move, the more lie elsewhere than where they are needed
/// next. Measured at 1.01 to 1.03 times what is live on twelve recorded programs: with windows by calls alone, or by pages
/// alone where memory is tight, sharded ones make up to a half more calls.
const PAGE: usize = 2;
/// The same where memory that can move is scarcer than time.
const PAGE_WHERE_TIGHT: usize = 4;

fn worth_of_page(tight: bool) -> usize {
    if tight { PAGE_WHERE_TIGHT } else { PAGE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_counts_as_much_as_two_calls_and_as_four_where_memory_is_tight() {
        let window = |pages, calls| Window {
            first: BlockId::NONE,
            start: 0,
            size: 0,
            pages,
            calls,
            apart: false,
            other_pages: false,
        };
        let is_better = |one: Window, other: Window, tight| one.cost(tight) < other.cost(tight);
        // Mappings left behind at four pages, against three new ones.
        assert!(is_better(window(4, 0), window(3, 3), false));
        assert!(is_better(window(3, 3), window(4, 0), true));
        // Two pages less for five calls more; one for two, and one for five.
        assert!(is_better(window(5, 6), window(3, 11), false));
        assert!(is_better(window(3, 11), window(5, 6), true));
        assert!(is_better(window(4, 5), window(5, 3), false));
        assert!(is_better(window(5, 4), window(4, 9), true));
    }

    #[test]
    fn of_equal_windows_the_lowest_counts_whatever_is_looked_at_first() {
        let window = |start, pages| Window {
            first: BlockId::NONE,
            start,
            size: 0,
            pages,
            calls: 0,
            apart: false,
            other_pages: false,
        };
        let run = |addr, least_cost| Run {
            first: BlockId::NONE,
            addr,
            least_cost,
        };
        let mut best = Best::new(false);
        assert!(best.may_beat(&run(0, 100)), "there is none yet");
        for (at, start) in [(200, 230), (200, 210), (100, 150), (300, 310)] {
            best.run = at;
            best.offer(window(start, 3), Purpose::Any);
        }
        // Three pages at two calls each.
        assert!(best.may_beat(&run(50, 6)) && !best.may_beat(&run(50, 7)));
        let windows = best.windows();
        let starts = [windows.dense, windows.moved].map(|window| window.expect("offered").start);
        assert_eq!(starts, [150, 150]);
        // Of one run the first that was offered.
        let mut best = Best::new(false);
        for start in [230, 210] {
            best.run = 200;
            best.offer(window(start, 3), Purpose::Dense);
        }
        assert!(
            best.may_beat(&run(50, 7)),
            "for memory that is moved there is none"
        );
        assert_eq!(best.windows().dense.expect("offered").start, 230);
    }
}
