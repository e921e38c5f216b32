//! Blocks: sizes, splitting, merging, reuse.

use crate::*;

#[test]
fn small_requests_share_a_two_mebibyte_segment() {
    let (driver, device) = device(GIB);
    let a = device.allocate(100, S0).expect("fits");
    let b = device.allocate(480, S0).expect("fits");
    let c = device.allocate(481, S0).expect("fits");
    assert_eq!((b - a, c - b), (512, 512));
    assert_eq!(driver.held(0), (1, 2 * MIB));
    let (stats, _) = device.stats();
    // 100 + 32 and 480 + 32 round to 512; 481 + 32 to 1024.
    assert_eq!(stats.allocated_bytes.current(), 512 + 512 + 1024);
    assert_eq!(stats.requested_bytes.current(), 100 + 480 + 481);
    assert_eq!(stats.inactive_split.current(), 1);
    assert_eq!(
        stats.inactive_split_bytes.current() as usize,
        2 * MIB - 2048
    );
    device.check_consistency().expect("consistent");
}

#[test]
fn segment_sizes_follow_the_request() {
    for (bytes, segment) in [
        (1, 2 * MIB),
        (MIB - 32, 2 * MIB),
        (MIB, 20 * MIB),
        (10 * MIB - 1024, 20 * MIB),
        (10 * MIB - 32, 10 * MIB),
        (10 * MIB, 12 * MIB),
        (100 * MIB + 1, 102 * MIB),
    ] {
        let (driver, device) = device(GIB);
        device.allocate(bytes, S0).expect("fits");
        assert_eq!(
            driver.held(0),
            (1, segment),
            "for a request of {bytes} bytes"
        );
    }
}

#[test]
fn freed_neighbours_merge_and_are_reused_without_the_driver() {
    let (driver, device) = device(GIB);
    let blocks: Vec<_> = (0..4)
        .map(|_| device.allocate(4 * MIB, S0).expect("fits"))
        .collect();
    assert_eq!(driver.held(0), (1, 20 * MIB));
    for addr in [blocks[1], blocks[3], blocks[2]] {
        assert!(device.deallocate(addr));
        device.check_consistency().expect("consistent");
    }
    let calls = driver.total_calls();
    // Three blocks of 4 MiB + 512 in one: only merged can they hold 12 MiB.
    let again = device.allocate(12 * MIB, S0).expect("fits");
    assert_eq!(again, blocks[1]);
    assert_eq!(driver.total_calls(), calls);
}

#[test]
fn max_split_size_keeps_large_blocks_whole() {
    let (driver, device) = device_with(GIB, "max_split_size_mb:64");
    let big = device.allocate(100 * MIB, S0).expect("fits");
    device.deallocate(big);
    // A small-enough request must not break the cached oversize block.
    device.allocate(30 * MIB, S0).expect("fits");
    assert_eq!(driver.held(0).0, 2);
    // An oversize request close to its size takes it.
    assert_eq!(device.allocate(95 * MIB, S0).expect("fits"), big);
    let (stats, max_split) = device.stats();
    assert_eq!(stats.oversize_allocations.current, 1);
    assert_eq!(max_split, 64 * MIB as i64);
}

#[test]
fn an_unknown_address_is_refused() {
    let (_, device) = device(GIB);
    let a = device.allocate(MIB, S0).expect("fits");
    assert!(!device.deallocate(a + 512));
    assert!(!device.record_stream(a + 512, SIDE));
    assert!(device.deallocate(a));
    assert!(!device.deallocate(a), "a second free");
    device.check_consistency().expect("consistent");
}

#[test]
fn an_emptied_cache_leaves_bookkeeping_in_order() {
    const MANY: usize = 20_000;
    let (_, device) = device(GIB);
    let blocks: Vec<usize> = (0..MANY)
        .map(|_| device.allocate(512, S0).expect("fits"))
        .collect();
    let held = device.bookkeeping_bytes();
    // In an order unlike that in which they were made; 7919 is prime.
    for at in 0..MANY {
        assert!(device.deallocate(blocks[at * 7919 % MANY]));
    }
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert!(device.bookkeeping_bytes() < held, "the map of addresses");
    let slots = (0..100).map(|_| {
        let addr = device.allocate(512, S0).expect("fits");
        device.describe_block(addr).expect("live").handle.block.0
    });
    assert_eq!(slots.collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    device.check_consistency().expect("consistent");
}
