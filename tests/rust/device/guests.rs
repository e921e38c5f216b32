//! Free blocks that serve other streams than their own.

use crate::*;
use npualloc::config::SkippedRungs;

/// Blocks lent so far.
fn lent(device: &DeviceAllocator) -> u64 {
    device.ladder().blocks_lent
}

/// A device that lends whenever memory would have to be mapped, and on it a block of the first stream's memory that the
/// second has.
fn with_guest() -> (Arc<FakeDriver>, DeviceAllocator, usize) {
    let (driver, device) = device_with(GIB, "expandable_segments:True");
    device.lend_eagerly();
    let home = allocate(&device, SIZE, S1);
    free(&device, home);
    // How far the first stream has come is not known yet.
    assert_ne!(allocate(&device, SIZE, S2), home);
    assert_eq!(allocate(&device, SIZE, S2), home);
    assert_eq!(lent(&device), 1);
    (driver, device, home)
}

#[test]
fn a_free_block_serves_another_stream_where_memory_would_move() {
    let (driver, device) = device_with(64 * GIB, "expandable_segments:True");
    let blocks: Vec<usize> = (0..10).map(|_| allocate(&device, GIB - 4096, S1)).collect();
    blocks[4..8].iter().for_each(|&addr| free(&device, addr));
    // Three GiB of the first stream's are free, and no more than about 3 % may be held beyond what was needed.
    allocate(&device, GIB - 4096, S2);
    assert_eq!(lent(&device), 0, "nobody knew how far the stream had come");
    let (mapped, obtained) = (driver.calls("map"), driver.calls("malloc_physical"));
    let guest = allocate(&device, GIB - 4096, S2);
    assert_eq!(lent(&device), 1);
    assert!(guest >= blocks[4] && guest < blocks[8]);
    assert_eq!(driver.calls("map"), mapped);
    assert_eq!(driver.calls("malloc_physical"), obtained);
    let view = device.describe_block(guest).expect("live");
    assert_eq!(view.stream, S2);
    assert_eq!(driver.calls("synchronize_device"), 0);
}

#[test]
fn nothing_is_lent_where_it_is_switched_off() {
    let mut settings = settings("expandable_segments:True");
    settings.skipped_rungs =
        SkippedRungs::from_environment(|_| Some("lent_blocks".to_owned())).expect("known");
    let driver = Arc::new(FakeDriver::new(GIB));
    let device = DeviceAllocator::new(DeviceId(0), driver, settings, 32).expect("device");
    device.lend_eagerly();
    let blocks: Vec<usize> = (0..4).map(|_| allocate(&device, SIZE, S1)).collect();
    blocks.into_iter().for_each(|addr| free(&device, addr));
    for _ in 0..4 {
        allocate(&device, SIZE, S2);
    }
    assert_eq!(lent(&device), 0);
}

/// Where streams can't wait for each other: blocks lent to the second stream for two requests of `bytes` (one to ask how far the first has come, one to know) on a
/// device that the first has filled with eleven blocks, of which it holds `left`.
fn lent_when_full(alias: bool, left: usize, bytes: usize) -> u64 {
    let (driver, device) = if alias {
        device_with(11 * 64 * MIB, "expandable_segments:True")
    } else {
        device_without_aliasing(11 * 64 * MIB)
    };
    driver.refuse_waits();
    let mut blocks: Vec<usize> = (0..11).map(|_| allocate(&device, SIZE, S1)).collect();
    blocks.drain(left..).for_each(|addr| free(&device, addr));
    allocate(&device, bytes, S2);
    allocate(&device, bytes, S2);
    lent(&device)
}

#[test]
fn a_full_device_lends_while_much_is_idle() {
    assert_eq!(lent_when_full(true, 3, 16 * MIB - 4096), 1);
    assert_eq!(lent_when_full(true, 8, 16 * MIB - 4096), 0);
}

#[test]
fn a_full_device_lends_large_blocks_where_a_page_has_one_address() {
    assert_eq!(lent_when_full(false, 8, SIZE + 4096), 1);
    assert_eq!(lent_when_full(false, 8, SIZE - 4096), 0);
    assert_eq!(lent_when_full(true, 8, SIZE + 4096), 0);
}

#[test]
fn a_small_request_gets_no_part_of_a_large_block_where_memory_may_get_short() {
    // Twelve GiB, of the device or for the process, are not twice what is needed.
    for (capacity, share) in [(12 * GIB, 1.0), (64 * GIB, 12.0 / 64.0)] {
        let (driver, device) = device_with(capacity, "expandable_segments:True");
        driver.refuse_waits();
        device.set_memory_fraction(share).expect("valid");
        let blocks: Vec<usize> = (0..8).map(|_| allocate(&device, GIB - 4096, S1)).collect();
        // Not one beside the other.
        for at in [2, 4] {
            free(&device, blocks[at]);
        }
        for _ in 0..3 {
            allocate(&device, GIB / 2, S2);
        }
        assert_eq!(lent(&device), 0, "{share}");
    }
}

#[test]
fn a_freed_guest_serves_its_own_stream_only_once_the_other_is_done() {
    let (driver, device, guest) = with_guest();
    driver.submit(token(2));
    free(&device, guest);
    assert_ne!(allocate(&device, SIZE, S1), guest);
    // The stream that used it last gets it at once, in parts too.
    let half = allocate(&device, 32 * MIB - 32, S2);
    let rest = allocate(&device, 16 * MIB, S2);
    assert_eq!(half, guest);
    assert!(rest > guest && rest < guest + SIZE);
    assert_eq!(lent(&device), 3);
    free(&device, half);
    free(&device, rest);
    driver.finish(token(2));
    // One request to ask, one to know.
    allocate(&device, SIZE, S1);
    assert_eq!(allocate(&device, SIZE, S1), guest);
    assert_eq!(device.describe_block(guest).expect("live").stream, S1);
}

#[test]
fn large_blocks_in_what_a_guest_left_are_aligned() {
    let (driver, device, guest) = with_guest();
    driver.submit(token(2));
    free(&device, guest);
    assert_eq!(allocate(&device, 12 * MIB, S2), guest);
    assert_eq!(allocate(&device, 12 * MIB, S2) % (16 << 10), 0);
}

#[test]
fn a_guest_that_a_third_stream_uses_waits_for_that_too() {
    let (driver, device, guest) = with_guest();
    assert!(device.record_stream(guest, token(3)));
    driver.submit(token(3));
    free(&device, guest);
    assert_ne!(allocate(&device, SIZE, S2), guest);
    driver.finish(token(3));
    assert_eq!(allocate(&device, SIZE, S2), guest);
}

#[test]
fn what_a_guest_left_is_returned_to_the_driver() {
    let (driver, device, guest) = with_guest();
    driver.submit(token(2));
    free(&device, guest);
    let free_bytes = |device: &DeviceAllocator| -> usize {
        let segments = device.snapshot(MempoolId::DEFAULT);
        segments.iter().map(|s| s.total_size - s.active_size).sum()
    };
    assert!(free_bytes(&device) >= SIZE);
    let held = driver.held(0).1;
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    device.check_consistency().expect("consistent");
    assert!(driver.held(0).1 <= held - (SIZE + 4096));
    assert_eq!(free_bytes(&device), 4096 - 512);
}

#[test]
fn what_is_freed_while_the_device_is_waited_for_is_not_over() {
    let (driver, device, guest) = with_guest();
    let device = Arc::new(device);
    let (other, works) = (device.clone(), driver.clone());
    driver.meanwhile("synchronize_device", move || {
        works.submit(token(2));
        assert!(other.deallocate(guest));
    });
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    device.check_consistency().expect("consistent");
    assert_ne!(allocate(&device, SIZE, S1), guest);
    assert_eq!(allocate(&device, SIZE, S2), guest);
}

#[test]
fn memory_that_a_guest_left_is_waited_for_before_there_is_none() {
    let (driver, device) = device_with(192 * MIB, "expandable_segments:True");
    device.lend_eagerly();
    let home = allocate(&device, SIZE, S1);
    free(&device, home);
    allocate(&device, SIZE, S2);
    let guest = allocate(&device, SIZE, S2);
    assert_eq!((guest, lent(&device)), (home, 1));
    allocate(&device, SIZE, S1);
    driver.submit(token(2));
    free(&device, guest);
    allocate(&device, SIZE, S1);
    assert_eq!(driver.calls("synchronize_device"), 0);
}

#[test]
fn nothing_is_lent_and_no_event_recorded_while_a_graph_is_captured() {
    let (driver, device) = device_with(GIB, "expandable_segments:True");
    device.lend_eagerly();
    let home = allocate(&device, SIZE, S1);
    free(&device, home);
    device.mark_capture_begin();
    driver.set_capturing(true);
    for _ in 0..3 {
        allocate(&device, SIZE, S2);
    }
    assert_eq!((lent(&device), driver.calls("event_record_fence")), (0, 0));
    driver.set_capturing(false);
    // Another thread captures still: an event on a stream that is not the request's own could be part of it.
    allocate(&device, SIZE, S2);
    assert_eq!((lent(&device), driver.calls("event_record_fence")), (0, 0));
    device.mark_capture_end().expect("begun");
    allocate(&device, SIZE, S2);
    assert_eq!(allocate(&device, SIZE, S2), home);
    // Nor where a guest was freed before.
    driver.submit(token(2));
    free(&device, home);
    let events = driver.calls("event_record_fence");
    device.mark_capture_begin();
    driver.set_capturing(true);
    assert_ne!(allocate(&device, SIZE, S1), home);
    assert_ne!(allocate(&device, 2 * SIZE, S2), home);
    assert_eq!(driver.calls("event_record_fence"), events);
}

#[test]
fn private_pools_neither_lend_nor_borrow() {
    let (_, device) = device_with(GIB, "expandable_segments:True");
    device.lend_eagerly();
    device.create_or_incref_pool(POOL, false).expect("new");
    let home = allocate(&device, SIZE, S1);
    free(&device, home);
    let own = device.allocate_in(SIZE, S1, POOL, None).expect("fits");
    assert!(device.deallocate(own));
    for _ in 0..2 {
        device.allocate_in(SIZE, S2, POOL, None).expect("fits");
    }
    assert_eq!(lent(&device), 0);
    // The first to ask; the memory of the pool is none of those that serve the second.
    let three = [(); 3].map(|()| allocate(&device, SIZE, S2));
    assert!(three.contains(&home) && !three.contains(&own));
}

#[test]
fn a_guest_sleeps_and_wakes_with_the_rest() {
    let (driver, device, guest) = with_guest();
    let asleep = device.sleep(None).expect("works");
    assert!(asleep >= 2 * SIZE);
    free(&device, guest);
    assert!(device.allocate(SIZE, S2).is_err());
    device.wake_up(None).expect("works");
    device.check_consistency().expect("consistent");
    assert_eq!(allocate(&device, SIZE, S2), guest);
    assert_eq!(driver.calls("synchronize_device"), 1);
}

#[test]
fn a_snapshot_shows_a_guest_as_a_segment_of_its_stream() {
    let (_driver, device, guest) = with_guest();
    let segments = device.snapshot(MempoolId::DEFAULT);
    let holds = segments.iter().find(|s| s.addr == guest).expect("shown");
    assert_eq!((holds.stream, holds.blocks.len()), (S2, 1));
    assert!(holds.blocks[0].allocated);
    free(&device, guest);
    // Free, it is its own stream's again.
    let covers =
        |s: &npualloc::device::SegmentInfo| (s.addr..s.addr + s.total_size).contains(&guest);
    let segments = device.snapshot(MempoolId::DEFAULT);
    let stream = segments.iter().find(|s| covers(s)).map(|s| s.stream);
    assert_eq!(stream, Some(S1));
}
