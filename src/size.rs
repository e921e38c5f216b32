//! Sizes: the constants and rounding rules of the stock allocator, which this one keeps so that
//! `allocated_bytes` agree to the byte. Source of every number: the stock allocator's documented
//! behaviour (PyTorch's caching allocator as adapted by torch_npu).

/// Every block's size and every rounded request is a multiple of this many bytes.
pub const MIN_BLOCK_SIZE: usize = 512;
/// Requests up to this size (after rounding) are served by the small pool.
pub const SMALL_SIZE: usize = 1 << 20;
/// Size of a small-pool segment.
pub const SMALL_SEGMENT: usize = 2 << 20;
/// Default size of the segment that serves requests between 1 MiB and 10 MiB.
pub const LARGE_SEGMENT: usize = 20 << 20;
/// Requests of at least this size get a segment of their own.
pub const MIN_LARGE_ALLOC: usize = 10 << 20;
/// Segments of requests ≥ [`MIN_LARGE_ALLOC`] are rounded up to a multiple of this.
pub const ROUND_LARGE: usize = 2 << 20;
/// Size of a page of the 1 GiB page type; with `page_size:1g` segments of the large pool are multiples of it.
pub const PAGE_1G: usize = 1 << 30;
/// More is asked for as this much, which no device has: so that no sum of sizes overflows.
pub const MOST_BYTES: usize = isize::MAX as usize;

/// Number of `roundup_power2_divisions` intervals: 1 MiB, 2 MiB, … 32 GiB and above.
pub const POWER2_INTERVALS: usize = 16;

/// Blocks up to this size are kept in steps: see [`kept_size`].
pub const MOST_STEPPED: usize = 2 << 20;
/// Steps from one power of two to the next.
pub const STEPS: usize = 8;

/// The distance of the sizes about `size` (> 0, at most [`MOST_STEPPED`]) in which blocks are kept.
#[inline]
pub const fn kept_step(size: usize) -> usize {
    // Up to 8 steps of 512 bytes, every multiple of 512 is one.
    (1 << ((size - 1) | (STEPS * MIN_BLOCK_SIZE)).ilog2()) / STEPS
}

/// The size of the block that serves a request of `size` bytes (a positive multiple of 512) where freed blocks are kept:
/// at most an eighth more, so that few sizes serve many requests; the same from [`MOST_STEPPED`] on.
#[inline]
pub const fn kept_size(size: usize) -> usize {
    if size > MOST_STEPPED {
        return size;
    }
    align_up(size, kept_step(size))
}

/// How many sizes [`kept_size`] gives to requests of up to [`MOST_STEPPED`].
pub const KEPT_SIZES: usize = 80;

/// Which of them it gives to a request of `size` bytes (> 0, at most [`MOST_STEPPED`]), counted from 0.
#[inline]
pub const fn kept_number(size: usize) -> usize {
    // The steps below it: 8 up to 4 KiB, as many for each octave from there on.
    let octave = ((size - 1) / (STEPS * MIN_BLOCK_SIZE)).checked_ilog2();
    let before = match octave {
        Some(octave) => octave as usize * STEPS,
        None => 0,
    };
    before + (size - 1) / kept_step(size)
}

/// `size` rounded up to a multiple of `to` (a power of two).
#[inline]
pub const fn align_up(size: usize, to: usize) -> usize {
    (size + to - 1) & !(to - 1)
}

/// Rounds `size` up to the next of `divisions` equal steps between two powers of two.
/// A power of two stays as it is. `divisions` must be a power of two and at least 2.
pub fn round_up_power2(size: usize, divisions: usize) -> usize {
    debug_assert!(divisions >= 2 && divisions.is_power_of_two());
    if size.is_power_of_two() {
        return size;
    }
    let floor = 1usize << size.ilog2();
    let step = floor >> divisions.ilog2();
    if step == 0 {
        floor << 1
    } else {
        size.next_multiple_of(step)
    }
}

/// Which of the [`POWER2_INTERVALS`] intervals governs a request of `size` bytes.
pub fn power2_interval(size: usize) -> usize {
    const FIRST: u32 = 20; // 1 MiB
    let log = if size == 0 { 0 } else { size.ilog2() };
    (log.saturating_sub(FIRST) as usize).min(POWER2_INTERVALS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power2_rounding_steps() {
        // 4 divisions between 1024 and 2048: 1024, 1280, 1536, 1792.
        assert_eq!(round_up_power2(1200, 4), 1280);
        assert_eq!(round_up_power2(1024, 4), 1024);
        assert_eq!(round_up_power2(1281, 4), 1536);
        assert_eq!(round_up_power2(2047, 4), 2048);
        assert_eq!(round_up_power2(3, 4), 4);
    }

    #[test]
    fn kept_sizes_are_few_and_near() {
        let sizes = (1..=2 * MOST_STEPPED / 512).map(|n| n * 512);
        for size in sizes.clone() {
            let kept = kept_size(size);
            assert!(kept >= size && kept - size <= size / 8, "{size}: {kept}");
            assert_eq!(kept_size(kept), kept);
            assert_eq!(kept > SMALL_SIZE, size > SMALL_SIZE, "the same list");
        }
        // 8 up to 4 KiB, then 8 for each of 9 octaves.
        let mut kept: Vec<_> = sizes
            .map(kept_size)
            .filter(|size| *size <= MOST_STEPPED)
            .collect();
        kept.dedup();
        assert_eq!(kept.len(), KEPT_SIZES);
        for (number, size) in kept.iter().enumerate() {
            assert_eq!(kept_number(*size), number);
            assert_eq!(kept_number(size - kept_step(*size) + 1), number, "{size}");
        }
        for pair in kept.windows(2) {
            assert_eq!(pair[1] - kept_step(pair[1]), pair[0]);
        }
        assert_eq!(kept_size(MOST_STEPPED + 512), MOST_STEPPED + 512);
    }

    #[test]
    fn intervals_start_at_one_mebibyte() {
        assert_eq!(power2_interval(1), 0);
        assert_eq!(power2_interval((2 << 20) - 1), 0);
        assert_eq!(power2_interval(2 << 20), 1);
        assert_eq!(power2_interval(1 << 40), POWER2_INTERVALS - 1);
    }
}
