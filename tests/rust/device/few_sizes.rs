//! Blocks of few sizes, where freed ones are kept: what they have beyond their requests counts for nobody, and is bounded.

use super::quick::{by_default, device_skipping};
use crate::*;

/// Blocks for requests of that size come back so often that they are expected to.
pub fn come_back(device: &DeviceAllocator, bytes: usize) {
    let blocks = [0; 64].map(|_| device.allocate(bytes, S0).expect("fits"));
    for block in blocks {
        assert!(device.deallocate(block));
    }
    // Whoever looks has those merged that are kept.
    device.stats();
}

/// How far apart two blocks lie that are allocated one after the other.
fn distance(device: &DeviceAllocator, bytes: usize) -> usize {
    let [one, other] = [0; 2].map(|_| device.allocate(bytes, S0).expect("fits"));
    other - one
}

#[test]
fn a_request_gets_a_block_of_one_of_few_sizes_and_counts_for_its_own() {
    let (_, device) = by_default(4 * GIB);
    device.allocate(64 * MIB, S0).expect("fits");
    // From here on memory is seen to be ample.
    device.allocate(4096, S0).expect("fits");
    come_back(&device, 70_000);
    let before = device.stats().0.allocated_bytes.current();
    assert_eq!(distance(&device, 70_000), 72 << 10);
    let addr = device.allocate(70_000, S0).expect("fits");
    let counted = device.stats().0.allocated_bytes.current() - before;
    assert_eq!(counted, 3 * 70_144);
    assert_eq!(device.describe_block(addr).expect("live").size, 70_144);
    // Another request of about that size gets the same block, and counts for its own size.
    for _ in 0..3 {
        assert!(device.deallocate(addr));
        assert_eq!(device.allocate(68_000, S0).expect("fits"), addr);
    }
    assert_eq!(device.describe_block(addr).expect("live").size, 68_096);
    let counted = device.stats().0.allocated_bytes.current() - before;
    assert_eq!(counted, 2 * 70_144 + 68_096);
    let snapshot = device.snapshot(MempoolId::DEFAULT);
    let blocks = snapshot.iter().flat_map(|segment| &segment.blocks);
    let sizes: Vec<_> = blocks.map(|block| (block.size, block.allocated)).collect();
    assert!(
        sizes
            .windows(3)
            .any(|sizes| { sizes == [(70_144, true), (73_728 - 70_144, false), (68_096, true)] })
    );
    device.check_consistency().expect("consistent");
}

#[test]
fn only_small_requests_get_blocks_of_few_sizes_where_virtual_segments_were_asked_for() {
    let device = device_skipping(32 * GIB, "expandable_segments:True", "");
    device.allocate(64 * MIB, S0).expect("fits");
    // From here on memory is seen to be ample.
    device.allocate(4096, S0).expect("fits");
    for bytes in [33 * 512 - 32, MIB + 512 - 32] {
        come_back(&device, bytes);
    }
    assert_eq!(distance(&device, 33 * 512 - 32), 36 * 512);
    assert_eq!(distance(&device, MIB + 512 - 32), MIB + 512);
    // An eighth of half a GiB is what may be beyond what counts.
    for _ in 0..513 {
        device.allocate(MIB - 32, S0).expect("fits");
    }
    assert_eq!(distance(&device, 33 * 512 - 32), 33 * 512);
    device.check_consistency().expect("consistent");
}

#[test]
fn what_stays_has_its_own_size() {
    for config in ["", "expandable_segments:True"] {
        let device = device_skipping(4 * GIB, config, "");
        device.allocate(64 * MIB, S0).expect("fits");
        device.allocate(4096, S0).expect("fits");
        // As weights do.
        for _ in 0..100 {
            assert_eq!(distance(&device, 70_000), 70_144);
        }
        // Some that come and go don't make others of their size so.
        for _ in 0..63 {
            let block = device.allocate(70_000, S0).expect("fits");
            assert!(device.deallocate(block));
            device.stats();
        }
        assert_eq!(distance(&device, 70_000), 70_144);
        come_back(&device, 70_000);
        assert_eq!(distance(&device, 70_000), 72 << 10);
        assert_eq!(distance(&device, 80_000 - 32), 80_384);
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn blocks_are_exact_where_what_is_beyond_would_be_more_than_next_to_nothing() {
    // 128 MiB of small blocks could have 16 MiB beyond what counts, more than 1/128 of 1 GiB.
    for (blocks, exact) in [(16, false), (128, true)] {
        let (_, device) = by_default(GIB);
        for _ in 0..blocks {
            device.allocate(MIB - 32, S0).expect("fits");
        }
        device.allocate(4096, S0).expect("fits");
        come_back(&device, 70_000);
        let expected = if exact { 70_144 } else { 72 << 10 };
        assert_eq!(distance(&device, 70_000), expected, "{blocks} blocks");
    }
}

#[test]
fn what_blocks_have_beyond_what_counts_stays_below_its_bound_on_the_hot_path() {
    const CAPACITY: usize = 4 * GIB;
    const COUNT: usize = 4000;
    for (config, share) in [("expandable_segments:True", 512), ("", 128)] {
        let device = device_skipping(CAPACITY, config, "");
        // Just above a step of 64 KiB: each block could have 63.5 KiB beyond.
        const BYTES: usize = (512 << 10) + 512 - 32;
        come_back(&device, BYTES);
        let allocate = || device.allocate(BYTES, S0).expect("fits");
        let at: Vec<_> = (0..COUNT).map(|_| allocate()).collect();
        at.iter().for_each(|addr| assert!(device.deallocate(*addr)));
        // Whoever takes the lock has the limits settled, while hardly anything is active.
        device.reset_peak_stats();
        for _ in 0..COUNT {
            allocate();
        }
        let (stats, _) = device.stats();
        let allocated = stats.allocated_bytes.current() as usize;
        let beyond = stats.reserved_bytes.current() as usize - allocated;
        let bound = CAPACITY / share + 4 * MIB;
        assert!(beyond <= bound, "{config}: {} MiB", beyond / MIB);
        let rest = CAPACITY - allocated - bound - 8 * MIB;
        device.allocate(rest, S0).expect("fits");
        device.check_consistency().expect("consistent");
    }
}
