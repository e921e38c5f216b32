//! The size of the pages under a request. Pure.

use super::state::{Request, State};
use crate::page::PageTable;
use crate::size::{LARGE_SEGMENT, PAGE_1G, SMALL_SEGMENT};

/// Size of the pages under large blocks, bytes. A driver call deals with one page: larger ones make fewer calls,
/// smaller ones leave less memory beside blocks that can't be moved. Most tensors are a power of two and 512 bytes, for
/// what kernels read past the end: 6 MiB is no power of two, so that such a block leaves 2 or 4 MiB of its last page
/// free, where it leaves all but 512 bytes of one of 8 MiB. Measured on twelve recorded programs (`docs/memory.md`): the
/// smallest capacity that is enough is 0.1–1.4 % above what is live, and was 0.2–2.8 % with 8 MiB.
const LARGE_PAGE: usize = 6 << 20;
/// The same where a page has one address: moving it takes two calls instead of one, so that fewer are worth more. On the
/// same programs 0.1–2.2 % above what is live, at a fifth to a third fewer calls than with 6 MiB; with 12 and 16 MiB
/// still fewer, but on the serving trace more time, for a call's grows with the page.
const LARGE_PAGE_AT_ONE_ADDRESS: usize = 10 << 20;
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
        } else if self.aliasing == Some(false) {
            LARGE_PAGE_AT_ONE_ADDRESS
        } else {
            LARGE_PAGE
        }
    }

    /// Whether a range has pages for such requests: small ones, or large ones, whatever was configured when it was
    /// reserved.
    pub(super) fn suits(&self, pages: &PageTable, request: &Request) -> bool {
        let is_fine = |page_size: usize| page_size == SMALL_SEGMENT;
        is_fine(pages.page_size()) == is_fine(self.page_size(request))
    }
}
