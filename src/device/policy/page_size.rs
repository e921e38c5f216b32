//! The size of the pages under a request. Pure.

use crate::device::state::{Request, State};
use crate::page::PageTable;
use crate::size::{LARGE_SEGMENT, PAGE_1G, SMALL_SEGMENT};

/// The most that a page under large blocks has, bytes. A driver call deals with one page: larger ones make fewer calls,
/// smaller ones leave less memory beside blocks that can't be moved. Measured on twelve recorded programs
/// (`docs/experiments-memory.md`, *Page sizes*).
const LARGE_PAGE: usize = 8 << 20;
/// The same where a page has one address: moving it takes two calls instead of one, so that fewer are worth more. With 12
/// and 16 MiB still fewer, but on the serving trace more time, for a call's grows with the page.
const LARGE_PAGE_AT_ONE_ADDRESS: usize = 10 << 20;
/// The same where blocks were used on several streams besides their own. These come back when other streams are done, not
/// in the order in which they were freed, so that more pages stay in part (sharded training, `docs/memory.md`, *Page sizes*).
const LARGE_PAGE_OF_SEVERAL: usize = 6 << 20;
/// So many streams are several.
const SEVERAL: usize = 2;
/// The least that a page under large blocks has, bytes.
const LEAST_LARGE_PAGE: usize = 4 << 20;
/// Pages under large blocks that all memory there is has at least, unless they would be smaller than that. Each run of
/// blocks leaves a part of a page free behind it, and there are as many runs on a small device.
const LARGE_PAGES: usize = 2400;
/// The statistics' pool of blocks above a MiB.
const LARGE_POOL: usize = 1;
/// A program's blocks above a MiB are looked at once there are this many bytes of them.
const LOOKED_AT: i64 = 1 << 30;
/// Where such a block has no more than this on average, bytes, pages have the least size: there are so many that what is
/// left of pages beside them comes to some percent of the memory. Of ten recorded programs two are so, both translation,
/// with 3.9 and 9.2 MiB at that time; the others have 14.5 MiB (sharded training) to 517 (`docs/memory.md`, *Page sizes*).
const SMALL_ON_AVERAGE: i64 = 12 << 20;
/// Large blocks of up to this many bytes lie in pages of the small blocks' size: one that outlives its neighbours holds
/// little then.
const FINE_UP_TO: usize = 4 << 20;

impl State {
    /// Size of the pages of a new virtual segment for a request, bytes: as configured, 2 MiB under small blocks if
    /// nothing is.
    pub(in crate::device) fn page_size(&self, request: &Request) -> usize {
        let settings = &self.settings;
        if request.small {
            SMALL_SEGMENT
        } else if settings.page_size_1g {
            PAGE_1G
        } else if settings.large_segment_size != LARGE_SEGMENT {
            settings.large_segment_size
        } else if settings.segment_size > 0 {
            settings.segment_size
        } else if request.size <= FINE_UP_TO {
            SMALL_SEGMENT
        } else {
            self.large_page_size()
        }
    }

    /// Decides, once there are enough blocks to tell by, whether pages under large ones have the least size from now on.
    pub(in crate::device) fn look_at_blocks(&mut self) {
        if self.least_pages.is_some() {
            return;
        }
        let [blocks, bytes] = self.stats.blocks.active(LARGE_POOL);
        if bytes >= LOOKED_AT {
            self.least_pages = Some(bytes <= blocks * SMALL_ON_AVERAGE);
        }
    }

    /// The most that a page under large blocks has by what the program turned out to be. It is never taken back, but may
    /// become less.
    fn learnt_page_size(&self) -> Option<usize> {
        if self.least_pages == Some(true) {
            Some(LEAST_LARGE_PAGE)
        } else if self.pending.streams() >= SEVERAL {
            Some(LARGE_PAGE_OF_SEVERAL)
        } else {
            None
        }
    }

    /// The same for large blocks if nothing is configured: whole units of 2 MiB.
    fn large_page_size(&self) -> usize {
        let usual = if self.aliasing == Some(false) {
            LARGE_PAGE_AT_ONE_ADDRESS
        } else {
            LARGE_PAGE
        };
        let most = self.learnt_page_size().unwrap_or(usual);
        let part = self.most_there_is() / LARGE_PAGES;
        (part - part % SMALL_SEGMENT).clamp(LEAST_LARGE_PAGE, most)
    }

    /// Whether a range has pages for such requests: small ones, or large ones, whatever was configured when it was
    /// reserved. Larger ones serve none any more once the size has become smaller.
    pub(in crate::device) fn suits(&self, pages: &PageTable, request: &Request) -> bool {
        let is_fine = |page_size: usize| page_size == SMALL_SEGMENT;
        let (has, wanted) = (pages.page_size(), self.page_size(request));
        let too_large = self.learnt_page_size().is_some() && has > wanted;
        is_fine(has) == is_fine(wanted) && !too_large
    }
}
