//! What kept blocks cost, and what addresses of theirs are taken for: tests that look into blocks.

use super::races::{MIB, device};
use crate::block::BlockState;
use crate::device::*;
use crate::ids::StreamKey;
use crate::size::MIN_BLOCK_SIZE;

const KIB: usize = 1 << 10;
const GIB: usize = 1 << 30;
const STREAM: StreamKey = StreamKey(1);

fn allocate(device: &DeviceAllocator, bytes: usize) -> usize {
    device.allocate(bytes, STREAM).expect("fits")
}

/// What the live blocks have beyond what counts, bytes.
fn beyond(device: &DeviceAllocator) -> usize {
    let state = device.state.lock();
    let blocks = state.arena.iter().map(|(_, block)| block);
    let live = blocks.filter(|block| block.state == BlockState::Live);
    live.map(|block| usize::from(block.slack) * MIN_BLOCK_SIZE)
        .sum()
}

/// `count` times a block of exactly one of the few sizes is freed, and one that it fits stays.
fn keep_smaller(device: &DeviceAllocator, count: usize, exact: usize, smaller: usize) {
    for _ in 0..count {
        let block = allocate(device, exact - 64);
        assert!(device.deallocate(block));
        allocate(device, smaller);
    }
}

#[test]
fn what_kept_blocks_have_beyond_what_counts_stays_below_its_bound() {
    let (_driver, device) = device(8 * GIB, "");
    // With pages to spare, so that nobody looks at the device meanwhile.
    let warm = allocate(&device, 4 * GIB);
    assert!(device.deallocate(warm));
    keep_smaller(&device, 2000, 1152 * KIB, 1024 * KIB);
    let most = 8 * GIB / 128;
    assert!(beyond(&device) > most / 2, "blocks of few sizes");
    assert!(beyond(&device) <= most);
}

#[test]
fn the_same_where_virtual_segments_were_asked_for() {
    let (_driver, device) = device(8 * GIB, "expandable_segments:True");
    let warm: Vec<_> = (0..4000).map(|_| allocate(&device, 512 * KIB)).collect();
    for block in warm {
        assert!(device.deallocate(block));
    }
    device.reset_peak_stats();
    keep_smaller(&device, 4000, 576 * KIB, 512 * KIB);
    let most = 8 * GIB / 512;
    assert!(beyond(&device) > most / 2, "blocks of few sizes");
    assert!(beyond(&device) <= most);
}

#[test]
fn what_leased_blocks_have_beyond_what_counts_stays_below_its_bound() {
    // A step of each of 700 blocks is more than the bound of 8 GiB, two steps are more than that of 12 GiB.
    for (capacity, larger) in [(8 * GIB, false), (12 * GIB, false), (64 * GIB, true)] {
        let (_driver, device) = device(capacity, "");
        allocate(&device, GIB);
        let warm: Vec<_> = (0..700)
            .map(|_| allocate(&device, 1280 * KIB - 64))
            .collect();
        for block in warm {
            assert!(device.deallocate(block));
        }
        device.assume_crowd();
        keep_smaller(&device, 520, 1280 * KIB, 1024 * KIB);
        assert!(beyond(&device) <= capacity / 128);
        assert_eq!(beyond(&device) > 520 * 128 * KIB, larger);
    }
}

#[test]
fn small_blocks_that_nobody_asks_for_make_room_for_large_ones() {
    let (_driver, device) = device(64 * GIB, "");
    allocate(&device, 8 * GIB);
    let use_large = |rounds: usize| {
        for _ in 0..rounds {
            let blocks = [20, 24, 28].map(|mib| allocate(&device, mib * MIB - 4096));
            for block in blocks {
                assert!(device.deallocate(block));
            }
        }
        device
            .state
            .lock_or_unwind()
            .with(|state| state.cache.quick.holds_large())
    };
    assert!(use_large(1000));
    let large = [20, 24, 28].map(|mib| allocate(&device, mib * MIB - 4096));
    // As many as are kept at the most, of sizes in which blocks are kept: one more, and small ones made room for small ones.
    let few_sizes = (1..=16).chain([18, 20, 22, 24]).cycle();
    let small: Vec<_> = few_sizes
        .take(4096)
        .map(|units| allocate(&device, units * MIN_BLOCK_SIZE - 32))
        .collect();
    for block in small {
        assert!(device.deallocate(block));
    }
    // The next operation keeps the block freed last.
    assert!(device.deallocate(large[0]));
    assert!(
        device
            .state
            .lock_or_unwind()
            .with(|state| state.cache.quick.is_full())
    );
    assert!(device.deallocate(large[1]) && device.deallocate(large[2]));
    assert!(use_large(1000));
}

#[test]
fn an_address_of_no_block_is_refused_after_a_block_came_and_went() {
    for settings in ["", "expandable_segments:True", "expandable_segments:False"] {
        let (_driver, device) = device(GIB, settings);
        let mut addr = 0;
        for frees in 0..3 {
            for _ in 0..frees {
                addr = allocate(&device, 4096);
                assert!(device.deallocate(addr));
            }
            for none in [1, 2, 511, addr + 1, addr, usize::MAX] {
                // What was freed again and again is looked at in its own way.
                let before = device.stats().0.allocation;
                assert!(!device.deallocate_plain(none), "{none:#x} after {frees}");
                assert!(!device.deallocate(none), "{none:#x} after {frees}");
                assert_eq!(device.stats().0.allocation, before);
            }
        }
        device.check_consistency().expect("consistent");
    }
}
