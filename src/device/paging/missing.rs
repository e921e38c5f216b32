//! What the pages of a run lack: how many have no memory, and the driver calls that mapping them takes. Pure.

use std::ops::Range;

use super::runs::Part;
use crate::page::PageTable;

/// Sums over the pages of one run, so that a window is two look-ups. Serves one run after another.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// The page that the run begins in.
    origin: usize,
    /// Pages without memory, and calls for them, from `origin` up to each page. Pages that the range never had come after
    /// them; each takes one call.
    upto: Vec<(usize, usize)>,
}

impl Missing {
    /// Sums up the pages of a run. `calls`: what mapping a page takes.
    pub fn count(&mut self, run: &[Part], pages: &PageTable, calls: impl Fn(usize) -> usize) {
        self.origin = run.first().map_or(0, |part| pages.page_of(part.addr));
        self.upto.clear();
        self.upto.push((0, 0));
        for part in run {
            // The page that two parts share was counted with the first.
            let counted = pages.addr_of(self.origin + self.upto.len() - 1);
            let from = pages.page_of(part.addr.max(counted));
            let to = pages.touching(part.addr, part.end).end.min(pages.touched());
            let (mut missing, mut cost) = self.upto[self.upto.len() - 1];
            if part.mapped {
                let pages = to.saturating_sub(from);
                self.upto.resize(self.upto.len() + pages, (missing, cost));
                continue;
            }
            self.upto.extend((from..to).map(|page| {
                if !pages.is_mapped(page) {
                    missing += 1;
                    cost += calls(page);
                }
                (missing, cost)
            }));
        }
    }

    /// Pages without memory in a window of the run, and calls for them.
    pub fn within(&self, window: &Range<usize>) -> (usize, usize) {
        let (before, after) = (self.before(window.start), self.before(window.end));
        (after.0 - before.0, after.1 - before.1)
    }

    fn before(&self, page: usize) -> (usize, usize) {
        let known = (page - self.origin).min(self.upto.len() - 1);
        let (missing, cost) = self.upto[known];
        let beyond = page - self.origin - known;
        (missing + beyond, cost + beyond)
    }
}
