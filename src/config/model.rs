//! The settings and the two rules that turn a request into sizes.

use super::{DefaultEngine, SkippedRungs};
use crate::size::{
    LARGE_SEGMENT, MIN_BLOCK_SIZE, MIN_LARGE_ALLOC, PAGE_1G, POWER2_INTERVALS, ROUND_LARGE,
    SMALL_SEGMENT, SMALL_SIZE, align_up, power2_interval, round_up_power2,
};

/// The largest alignment of large blocks in virtual segments that can be asked for.
pub const MAX_BASE_ALIGN: usize = 16 << 10;

/// Whether `expandable_segments` was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExpandableSegments {
    /// Not given: [`Settings::default_engine`] decides. The stock allocator uses fixed segments then.
    #[default]
    Default,
    /// `expandable_segments:True`.
    On,
    /// `expandable_segments:False`.
    Off,
}

/// Every setting of the allocator. All sizes in bytes; defaults are the stock ones.
///
/// A value changes only by [`Settings::parse`], [`Settings::apply_runtime`] and
/// [`Settings::apply_any`], which also keep what the hot path precomputes.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Blocks of at least this size are never split; `usize::MAX` = no limit.
    pub max_split_size: usize,
    /// By how much a block that may not be split may exceed the request.
    pub max_non_split_rounding_size: usize,
    /// Share of the allowed memory above which idle segments are collected; 0 = never.
    pub garbage_collection_threshold: f64,
    /// Steps between two powers of two that requests are rounded to, by interval; 0 or 1 = no
    /// such rounding.
    pub roundup_power2_divisions: [usize; POWER2_INTERVALS],
    /// Virtual segments that grow.
    pub expandable_segments: ExpandableSegments,
    /// What holds when `expandable_segments` is not given. Not part of the configuration string.
    pub default_engine: DefaultEngine,
    /// Rungs of the ladder left out. Not part of the configuration string.
    pub skipped_rungs: SkippedRungs,
    /// Bytes of physical memory that a thread may obtain ahead of need (virtual segments); 0 = none, and no thread.
    /// Not part of the configuration string.
    pub prefetch: usize,
    /// Segment that serves requests between 1 MiB and 10 MiB.
    pub large_segment_size: usize,
    /// The deprecated `segment_size_mb`, for virtual segments only; 0 = not given.
    pub segment_size: usize,
    /// Alignment of large blocks in virtual segments; 0 = none.
    pub base_addr_aligned_size: usize,
    /// Large segments in 1 GiB pages.
    pub page_size_1g: bool,
    /// Completed events are looked for only when no cached block serves the request.
    pub multi_stream_lazy_reclaim: bool,
    /// The device lock is released while the driver allocates.
    pub release_lock_on_npumalloc: bool,
    /// Requests above the process's share are refused before the driver is asked.
    pub throw_on_npumalloc_oom: bool,
    /// The process's share of the device's memory, 0 to 1.
    pub per_process_memory_fraction: f64,
    /// Host memory: events are processed in threads of their own.
    pub pinned_use_background_threads: bool,
    /// Host memory: requests above this are not rounded to a power of two; `usize::MAX` = no limit.
    pub pinned_max_round_threshold: usize,
    /// Host memory: blocks above this are not cached; `usize::MAX` = no limit.
    pub pinned_max_cached_size: usize,
    /// Host memory: size of the segment reserved at start; 0 = none.
    pub pinned_reserve_segment_size: usize,
    /// Host memory in virtual segments. As given: whether the installed driver can do it is the
    /// caller's to find out.
    pub pin_memory_expandable_segments: bool,
    /// Host memory is registered. Off where [`Settings::pin_memory_expandable_segments`] is on,
    /// which excludes it.
    pub pinned_mem_register: bool,
    /// Whether any of [`Settings::roundup_power2_divisions`] rounds at all.
    rounds_to_divisions: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_split_size: usize::MAX,
            max_non_split_rounding_size: LARGE_SEGMENT,
            garbage_collection_threshold: 0.0,
            roundup_power2_divisions: [0; POWER2_INTERVALS],
            expandable_segments: ExpandableSegments::Default,
            default_engine: DefaultEngine::Fixed,
            skipped_rungs: SkippedRungs::default(),
            prefetch: 0,
            large_segment_size: LARGE_SEGMENT,
            segment_size: 0,
            base_addr_aligned_size: MAX_BASE_ALIGN,
            page_size_1g: false,
            multi_stream_lazy_reclaim: false,
            release_lock_on_npumalloc: false,
            throw_on_npumalloc_oom: false,
            per_process_memory_fraction: 1.0,
            pinned_use_background_threads: false,
            pinned_max_round_threshold: usize::MAX,
            pinned_max_cached_size: usize::MAX,
            pinned_reserve_segment_size: 0,
            pin_memory_expandable_segments: false,
            pinned_mem_register: false,
            rounds_to_divisions: false,
        }
    }
}

impl Settings {
    /// Recomputes what the hot path reads; to be called after a change of the divisions.
    pub(super) fn precompute(&mut self) {
        self.rounds_to_divisions = self.roundup_power2_divisions.iter().any(|&d| d > 1);
    }

    /// The size of the block that serves a request of `bytes`, `pad` bytes of padding included.
    /// `bytes` is at most [`crate::size::MOST_BYTES`] and `pad` below a page: a device asks for no more.
    #[inline]
    pub fn round_size(&self, bytes: usize, pad: usize) -> usize {
        let size = bytes + pad;
        if self.rounds_to_divisions && size >= MIN_BLOCK_SIZE {
            return self.round_size_by_divisions(size);
        }
        align_up(size.max(MIN_BLOCK_SIZE), MIN_BLOCK_SIZE)
    }

    /// Whether requests are rounded to multiples of 512 bytes, and no further.
    pub fn rounds_plainly(&self) -> bool {
        !self.rounds_to_divisions
    }

    fn round_size_by_divisions(&self, size: usize) -> usize {
        let divisions = self.roundup_power2_divisions[power2_interval(size)];
        // The product wraps for absurd divisions, as in the stock allocator.
        if divisions > 1 && size > MIN_BLOCK_SIZE.wrapping_mul(divisions) {
            round_up_power2(size, divisions)
        } else {
            align_up(size, MIN_BLOCK_SIZE)
        }
    }

    /// Whether a page of `bytes` is of the 1 GiB page type: others may have that size too.
    pub fn is_huge_page(&self, bytes: usize) -> bool {
        self.page_size_1g && bytes == PAGE_1G
    }

    /// The size of the segment that serves a block of `rounded` bytes (a result of
    /// [`Settings::round_size`]).
    pub fn allocation_size(&self, rounded: usize) -> usize {
        if rounded <= SMALL_SIZE {
            SMALL_SEGMENT
        } else if self.page_size_1g {
            align_up(rounded, PAGE_1G)
        } else if rounded < MIN_LARGE_ALLOC {
            self.large_segment_size
        } else {
            align_up(rounded, ROUND_LARGE)
        }
    }
}
