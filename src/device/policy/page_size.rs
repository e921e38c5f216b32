//! The size of the pages under a request. Pure.

use super::large_blocks::{LARGE_POOL, LOOKED_AT, LargeBlocks};
use crate::block::{Block, BlockState};
use crate::device::state::{Request, State};
use crate::page::PageTable;
use crate::size::{LARGE_SEGMENT, PAGE_1G, SMALL_SEGMENT, SMALL_SIZE};

/// The most that a page under large blocks has, bytes. A driver call deals with one page: larger ones make fewer calls,
/// smaller ones leave less memory beside blocks that can't be moved. Measured on twelve recorded programs
/// (`docs/experiments-memory.md`, *Page sizes*).
const LARGE_PAGE: usize = 8 << 20;
/// The same where a page has one address: moving it takes two calls instead of one, so that fewer are worth more. With 12
/// and 16 MiB still fewer, but on the serving trace more time, for a call's grows with the page.
const LARGE_PAGE_AT_ONE_ADDRESS: usize = 10 << 20;
/// The most where blocks were used on several streams besides their own. These come back when other streams are done, not
/// in the order in which they were freed, so that most pages stay in part (sharded training, `docs/memory.md`, *Page sizes*).
/// Not where they have the least for want of memory: with 5 GiB in all that took five times as many calls.
const LARGE_PAGE_OF_SEVERAL: usize = 2 << 20;
/// The same where moving a page takes two calls, or nobody asked for virtual segments: half of the calls, for up to half a
/// percent more memory.
const LARGE_PAGE_OF_SEVERAL_AT_LEISURE: usize = 4 << 20;
/// The least that a page under large blocks has for want of memory, bytes.
const LEAST_LARGE_PAGE: usize = 4 << 20;
/// Pages under large blocks that all memory there is has at least, unless they would be smaller than that. Each run of
/// blocks leaves a part of a page free behind it, and there are as many runs on a small device.
const LARGE_PAGES: usize = 2400;
/// Blocks that came since a program was loaded are looked at once there are so many bytes more: what it loads first stays, mostly,
/// and leaves no part of a page free while it does. It is taken for loaded once so many bytes were freed again as a first
/// look needs. Measured on five made-up programs that serve (`docs/experiments-memory.md`, *Weights, and what comes and goes*).
const CHANGES: [usize; 2] = [2 << 30, 4 << 30];
/// A page under large blocks has no more than this part of the one in the middle, to the nearest 2 MiB: half of those bytes
/// are in blocks up to its size. The smaller blocks are, the more of them there are beside which a part of a page is
/// left (`docs/memory.md`, *Page sizes*).
const PART_OF_MIDDLE: usize = 4;
/// Large blocks of up to this many bytes lie in pages of the small blocks' size: one that outlives its neighbours holds
/// little then.
const FINE_UP_TO: usize = 4 << 20;

/// The most that a page has under blocks of which `middle` is the one in the middle: a multiple of 2 MiB, or no limit.
fn page_under(middle: usize) -> usize {
    let part = middle.div_ceil(PART_OF_MIDDLE);
    let nearest = part.saturating_sub(SMALL_SEGMENT / 2);
    let page = nearest.next_multiple_of(SMALL_SEGMENT).max(SMALL_SEGMENT);
    if page < LARGE_PAGE_AT_ONE_ADDRESS {
        page
    } else {
        usize::MAX
    }
}

impl State {
    /// Size of the pages of a new virtual segment for a request, bytes: as configured, 2 MiB under small blocks if
    /// nothing is.
    pub(in crate::device) fn page_size(&self, request: &Request) -> usize {
        if request.small {
            SMALL_SEGMENT
        } else if let Some(configured) = self.configured_page_size() {
            configured
        } else if request.size <= FINE_UP_TO {
            SMALL_SEGMENT
        } else {
            self.large_page_size()
        }
    }

    /// Whether pages under large blocks are as small as those under small ones.
    pub(super) fn all_pages_are_small(&self) -> bool {
        let configured = self.configured_page_size();
        configured.unwrap_or_else(|| self.large_page_size()) == SMALL_SEGMENT
    }

    /// The size of the pages under large blocks that the settings ask for.
    fn configured_page_size(&self) -> Option<usize> {
        let settings = &self.settings;
        if settings.page_size_1g {
            Some(PAGE_1G)
        } else if settings.large_segment_size != LARGE_SEGMENT {
            Some(settings.large_segment_size)
        } else {
            Some(settings.segment_size).filter(|size| *size > 0)
        }
    }

    /// Looks at what sizes large blocks have, once there are enough to tell by: what pages under them have at the most
    /// follows from that.
    pub(in crate::device) fn look_at_blocks(&mut self) {
        let [_, active] = self.stats.blocks.active(LARGE_POOL);
        let active = active as usize;
        self.look_for_shards(active);
        let Some(page) = self.budget.page_by_blocks else {
            if active >= LOOKED_AT {
                self.budget.page_by_blocks = Some(page_under(self.large_blocks().middle()));
            }
            return;
        };
        let Some(loaded) = &self.budget.loaded else {
            self.budget.loaded = self.freed_a_look().then(|| self.large_blocks());
            return;
        };
        let Some(&look) = CHANGES.get(self.budget.looks_at_changes) else {
            return;
        };
        if active >= loaded.bytes() + look {
            let changing = self.large_blocks().beyond(loaded);
            self.budget.looks_at_changes += 1;
            if page_under(changing.middle()) == SMALL_SEGMENT {
                self.budget.page_by_blocks = Some(page.min(SMALL_SEGMENT));
            }
        }
    }

    /// All active blocks above a MiB.
    fn large_blocks(&self) -> LargeBlocks {
        let counts = |block: &Block| {
            matches!(block.state, BlockState::Live | BlockState::Pending) && block.size > SMALL_SIZE
        };
        let blocks = self.arena.iter().map(|(_, block)| block);
        blocks.filter(|it| counts(it)).map(|it| it.size).collect()
    }

    /// The most that a page under large blocks has by what the program turned out to be; the memory there is allows
    /// `by_memory`. It may become less, and is not taken back unless the process's share of the memory changes.
    fn learnt_page_size(&self, by_memory: usize) -> usize {
        let by_blocks = self.budget.page_by_blocks.unwrap_or(usize::MAX);
        let several = self.uses_several_streams() || self.expects_several_streams();
        if several && by_memory > LEAST_LARGE_PAGE {
            by_blocks.min(self.page_of_several())
        } else {
            by_blocks
        }
    }

    /// The most that a page under large blocks has then.
    fn page_of_several(&self) -> usize {
        if self.may_keep() || self.has_one_address() {
            LARGE_PAGE_OF_SEVERAL_AT_LEISURE
        } else {
            LARGE_PAGE_OF_SEVERAL
        }
    }

    /// Whether the driver refuses a second address for a page.
    fn has_one_address(&self) -> bool {
        self.paging.aliasing == Some(false)
    }

    /// The most that a page under large blocks has by the memory there is: whole units of 2 MiB.
    fn page_size_by_memory(&self) -> usize {
        let usual = if self.has_one_address() {
            LARGE_PAGE_AT_ONE_ADDRESS
        } else {
            LARGE_PAGE
        };
        let part = self.most_there_is() / LARGE_PAGES;
        (part - part % SMALL_SEGMENT).clamp(LEAST_LARGE_PAGE, usual)
    }

    /// The size of the pages under large blocks if nothing is configured.
    fn large_page_size(&self) -> usize {
        let by_memory = self.page_size_by_memory();
        by_memory.min(self.learnt_page_size(by_memory))
    }

    /// Whether a range has pages for such requests: small ones, or large ones, whatever was configured when it was
    /// reserved. Larger ones serve none any more once the size has become smaller.
    pub(in crate::device) fn suits(&self, pages: &PageTable, request: &Request) -> bool {
        let is_fine = |page_size: usize| page_size == SMALL_SEGMENT;
        let (has, wanted) = (pages.page_size(), self.page_size(request));
        let too_large =
            has > wanted && self.learnt_page_size(self.page_size_by_memory()) < usize::MAX;
        is_fine(has) == is_fine(wanted) && !too_large
    }
}
