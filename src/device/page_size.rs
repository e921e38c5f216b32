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

    /// Decides, once there are enough blocks to tell by, whether pages under large ones have the least size from now on.
    pub(super) fn look_at_blocks(&mut self) {
        if self.least_pages.is_some() {
            return;
        }
        let large = |bytes| self.stats.blocks.active_parts(bytes)[1][0][0];
        let bytes = large(true);
        if bytes >= LOOKED_AT {
            self.least_pages = Some(bytes <= large(false) * SMALL_ON_AVERAGE);
        }
    }

    /// The same for large blocks if nothing is configured: whole units of 2 MiB.
    fn large_page_size(&self) -> usize {
        if self.least_pages == Some(true) {
            return LEAST_LARGE_PAGE;
        }
        let most = if self.aliasing == Some(false) {
            LARGE_PAGE_AT_ONE_ADDRESS
        } else {
            LARGE_PAGE
        };
        let part = self.most_there_is() / LARGE_PAGES;
        (part - part % SMALL_SEGMENT).clamp(LEAST_LARGE_PAGE, most)
    }

    /// Whether a range has pages for such requests: small ones, or large ones, whatever was configured when it was
    /// reserved. Larger ones than the least serve none any more once that is the size.
    pub(super) fn suits(&self, pages: &PageTable, request: &Request) -> bool {
        let is_fine = |page_size: usize| page_size == SMALL_SEGMENT;
        let (has, wanted) = (pages.page_size(), self.page_size(request));
        let too_large = self.least_pages == Some(true) && has > wanted;
        is_fine(has) == is_fine(wanted) && !too_large
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::config::Settings;
    use crate::device::DeviceAllocator;
    use crate::driver::fake::FakeDriver;
    use crate::ids::{DeviceId, StreamKey};

    const MIB: usize = 1 << 20;

    /// The sizes of the pages under blocks of these sizes, MiB, allocated one after another on a large device.
    fn pages_under(sizes: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let driver = Arc::new(FakeDriver::new(64 << 30));
        let settings = Settings::parse("expandable_segments:True").expect("valid");
        let device = DeviceAllocator::new(DeviceId(0), driver, settings, 32).expect("device");
        let mut page_size = |size: usize| {
            let addr = device.allocate(size * MIB, StreamKey(0)).expect("fits");
            let state = device.state.lock();
            let id = state.live.get(addr, &state.arena).expect("live");
            state.pages_of(id).expect("virtual").page_size() / MIB
        };
        let sizes = sizes.into_iter().map(&mut page_size).collect();
        device.check_consistency().expect("consistent");
        sizes
    }

    #[test]
    fn a_gib_of_small_blocks_makes_the_pages_small() {
        // 102 blocks of 10 MiB are less than a GiB, 103 are more: the first request after that has small pages.
        let under = pages_under([10; 105]);
        assert_eq!(under[..103], [8; 103]);
        assert_eq!(under[103..], [4; 2]);
        // What was mapped before is as it was, and not mapped on.
        assert_eq!(
            pages_under([10; 104].into_iter().chain([100; 2]))[103..],
            [4; 3]
        );
    }

    #[test]
    fn pages_stay_large_where_blocks_are_at_the_first_gib() {
        assert_eq!(pages_under([14; 80]), [8; 80]);
        // Small ones that come later change nothing.
        let later = [512, 512].into_iter().chain([10; 800]);
        assert_eq!(pages_under(later), [8; 802]);
    }

    #[test]
    fn configured_sizes_stay() {
        let driver = Arc::new(FakeDriver::new(64 << 30));
        let mut settings = Settings::parse("expandable_segments:True").expect("valid");
        settings.segment_size = 20 * MIB;
        let device = DeviceAllocator::new(DeviceId(0), driver, settings, 32).expect("device");
        let last = (0..110).map(|_| device.allocate(10 * MIB, StreamKey(0)).expect("fits"));
        let last = last.last().expect("some");
        let state = device.state.lock();
        let id = state.live.get(last, &state.arena).expect("live");
        assert_eq!(state.pages_of(id).expect("virtual").page_size(), 20 * MIB);
        assert_eq!(state.segments.iter().count(), 1);
    }
}
