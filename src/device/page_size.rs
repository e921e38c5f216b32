//! The size of the pages under a request. Pure.

use super::state::{Request, State};
use crate::page::PageTable;
use crate::size::{LARGE_SEGMENT, PAGE_1G, SMALL_SEGMENT};

/// The most that a page under large blocks has, bytes. A driver call deals with one page: larger ones make fewer calls,
/// smaller ones leave less memory beside blocks that can't be moved. Measured on twelve recorded programs
/// (`docs/memory.md`, *Page sizes*).
const LARGE_PAGE: usize = 8 << 20;
/// The same where a page has one address: moving it takes two calls instead of one, so that fewer are worth more. With 12
/// and 16 MiB still fewer, but on the serving trace more time, for a call's grows with the page.
const LARGE_PAGE_AT_ONE_ADDRESS: usize = 10 << 20;
/// The least that a page under large blocks has, bytes.
const LEAST_LARGE_PAGE: usize = 4 << 20;
/// Pages under large blocks that all memory there is has at least, unless they would be smaller than that. Each run of
/// blocks leaves a part of a page free behind it, and there are as many runs on a small device.
const LARGE_PAGES: usize = 2400;
/// Large blocks of up to this many bytes lie in pages of the small blocks' size: one that outlives its neighbours holds
/// little then.
const FINE_UP_TO: usize = 4 << 20;

impl State {
    /// Size of the pages of a new virtual segment for a request, bytes: as configured, 2 MiB under small blocks if
    /// nothing is.
    pub(super) fn page_size(&self, request: &Request) -> usize {
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

    /// The same for large blocks if nothing is configured: whole units of 2 MiB.
    fn large_page_size(&self) -> usize {
        let most = if self.aliasing == Some(false) {
            LARGE_PAGE_AT_ONE_ADDRESS
        } else {
            LARGE_PAGE
        };
        let part = self.most_there_is() / LARGE_PAGES;
        (part - part % SMALL_SEGMENT).clamp(LEAST_LARGE_PAGE, most)
    }

    /// Whether a range has pages for such requests: small ones, or large ones, whatever was configured when it was
    /// reserved.
    pub(super) fn suits(&self, pages: &PageTable, request: &Request) -> bool {
        let is_fine = |page_size: usize| page_size == SMALL_SEGMENT;
        is_fine(pages.page_size()) == is_fine(self.page_size(request))
    }
}
