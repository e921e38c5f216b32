//! Virtual segments.

use crate::*;

#[test]
fn pages_of_a_gibibyte_are_of_the_page_type_asked_for() {
    for (config, huge) in [("large_segment_size_mb:1024", 0), ("page_size:1g", 1)] {
        let config = format!("expandable_segments:True,{config}");
        let (driver, device) = device_with(8 * GIB, &config);
        let block = device.allocate(12 * MIB, S0).expect("fits");
        let pages = device.pages_under(block).expect("virtual");
        assert_eq!((pages.page_size, driver.huge_pages()), (GIB, huge));
        // Also where memory comes back.
        device.sleep(None).expect("works");
        assert_eq!(device.wake_up(None).expect("works"), GIB);
        assert_eq!(driver.huge_pages(), 2 * huge);
    }
}

#[test]
fn virtual_segments_map_what_is_needed_and_unmap_what_is_idle() {
    let (driver, device) = device_with(GIB, "expandable_segments:True");
    let a = device.allocate(12 * MIB, S0).expect("fits");
    let b = device.allocate(12 * MIB, S0).expect("fits");
    assert_eq!(
        b,
        a + 12 * MIB + 16 * 1024,
        "dense but for the base alignment"
    );
    assert_eq!(driver.mapped_bytes(0), 32 * MIB);
    device.deallocate(a);
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    // Only the first page holds nothing of b.
    assert_eq!(driver.mapped_bytes(0), 24 * MIB);
    let pages = device.pages_under(b).expect("virtual");
    assert_eq!(
        (pages.page_size, pages.addr, pages.handles.len()),
        (8 * MIB, a + 8 * MIB, 3)
    );
    device.deallocate(b);
    device.empty_virtual_cache().expect("works");
    assert_eq!(
        (driver.mapped_bytes(0), device.idle_physical_bytes()),
        (0, 24 * MIB)
    );
    let calls = driver.calls("malloc_physical");
    device.allocate(20 * MIB, S0).expect("from idle memory");
    assert_eq!(driver.calls("malloc_physical"), calls);
    device.check_consistency().expect("consistent");
}

/// Blocks of `sizes` MiB less the padding, on one stream.
fn blocks(device: &DeviceAllocator, sizes: &[usize]) -> Vec<usize> {
    sizes
        .iter()
        .map(|size| device.allocate(size * MIB - 4096, S0).expect("fits"))
        .collect()
}

#[test]
fn idle_pages_move_under_one_range_without_a_device_synchronisation() {
    let (driver, device) = device_without_aliasing(256 * MIB);
    let held = blocks(&device, &[64, 64, 64, 64]);
    device.deallocate(held[0]);
    device.deallocate(held[2]);
    // 128 MiB are free, in two holes of 64 between blocks that are in use.
    let big = blocks(&device, &[120])[0];
    assert!(!held.contains(&big));
    assert_eq!(driver.calls("synchronize_device"), 0);
    assert_eq!(
        driver.calls("malloc_physical"),
        256 / 8 + 2,
        "one for the probe, and one attempt to get more"
    );
    assert_eq!(driver.calls("unmap"), 15 + 1);
    device.check_consistency().expect("consistent");
}

#[test]
fn pages_under_running_work_are_waited_for_and_others_are_not() {
    let (driver, device) = device_without_aliasing(256 * MIB);
    let held = blocks(&device, &[64, 64, 64, 64]);
    driver.submit(token(0));
    device.deallocate(held[0]);
    device.deallocate(held[2]);
    blocks(&device, &[120]);
    assert_eq!(driver.calls("event_synchronize"), 1);
    // The fence passed above covers nothing freed later.
    driver.submit(token(0));
    device.deallocate(held[1]);
    blocks(&device, &[64]);
    assert_eq!(
        driver.calls("event_synchronize"),
        1,
        "a block that fits needs no wait"
    );
    assert_eq!(driver.calls("synchronize_device"), 0);
}

#[test]
fn a_block_in_moved_memory_grows_by_the_pages_it_lacks() {
    let (driver, device) = device_without_aliasing(256 * MIB);
    let held = blocks(&device, &[64, 64, 64, 64]);
    device.deallocate(held[0]);
    device.deallocate(held[2]);
    let big = blocks(&device, &[112])[0];
    device.deallocate(big);
    let before = (driver.calls("map"), driver.calls("unmap"));
    let bigger = blocks(&device, &[120])[0];
    assert_eq!(bigger, big);
    assert_eq!(
        (driver.calls("map"), driver.calls("unmap")),
        (before.0 + 1, before.1 + 1)
    );
}

#[test]
fn pages_of_another_stream_are_taken_after_its_work() {
    let (driver, device) = device_without_aliasing(256 * MIB);
    let other = StreamKey(1);
    let a = device.allocate(200 * MIB, other).expect("fits");
    driver.submit(token(1));
    device.deallocate(a);
    device
        .allocate(200 * MIB, S0)
        .expect("the other stream's pages");
    assert_eq!(driver.calls("event_synchronize"), 1);
    assert_eq!(driver.calls("synchronize_device"), 0);
    device.check_consistency().expect("consistent");
}

#[test]
fn pages_of_a_private_pool_in_use_stay_where_they_are() {
    let (driver, device) = device_without_aliasing(256 * MIB);
    let pool = MempoolId {
        first: 0,
        second: 7,
    };
    device.create_or_incref_pool(pool, false).expect("new");
    let a = device.allocate_in(200 * MIB, S0, pool, None).expect("fits");
    device.deallocate(a);
    device
        .allocate(200 * MIB, S0)
        .expect_err("a graph may still use the pool's addresses");
    device.release_pool(pool).expect("known");
    device
        .allocate(200 * MIB, S0)
        .expect("the pool is out of use");
    assert!(driver.calls("unmap") >= 18);
    device.check_consistency().expect("consistent");
}

#[test]
fn small_pages_are_exchanged_for_large_ones_and_back() {
    let (_, device) = device_with(64 * MIB, "expandable_segments:True");
    let small: Vec<_> = (0..60)
        .map(|_| device.allocate(MIB - 4096, S0).expect("fits"))
        .collect();
    for addr in small {
        device.deallocate(addr);
    }
    let large = device
        .allocate(56 * MIB - 4096, S0)
        .expect("small pages are given up");
    device.deallocate(large);
    for _ in 0..60 {
        device
            .allocate(MIB - 4096, S0)
            .expect("large pages are given up");
    }
    device.check_consistency().expect("consistent");
}

#[test]
fn while_there_is_more_to_be_had_no_large_page_is_given_up_for_a_small_one() {
    let (driver, device) = device_with(4 * GIB, "expandable_segments:True");
    // As much is held as is to be held: 256 MiB more than was ever needed at once.
    for stream in [S0, StreamKey(1)] {
        let addr = device.allocate(GIB, stream).expect("fits");
        device.deallocate(addr);
    }
    let held = || device.stats().0.reserved_bytes.current();
    let before = held();
    let (unmaps, frees) = (driver.calls("unmap"), driver.calls("free_physical"));
    device.allocate(MIB - 4096, S0).expect("fits");
    assert_eq!(driver.calls("unmap"), unmaps);
    assert_eq!(driver.calls("free_physical"), frees);
    assert_eq!(held(), before + 2 * MIB as i64);
    // But not without end.
    for _ in 0..20 {
        device.allocate(MIB - 4096, S0).expect("fits");
    }
    assert!(driver.calls("free_physical") > frees);
    device.check_consistency().expect("consistent");
}

#[test]
fn pages_move_within_a_stream_without_a_wait_where_aliasing_is_allowed() {
    let (driver, device) = device_with(256 * MIB, "expandable_segments:True");
    let held = blocks(&device, &[64, 64, 56, 64]);
    driver.submit(token(0));
    device.deallocate(held[0]);
    device.deallocate(held[2]);
    let (maps, unmaps) = (driver.calls("map"), driver.calls("unmap"));
    let big = blocks(&device, &[112])[0];
    assert_eq!(driver.calls("event_synchronize"), 0);
    assert_eq!(driver.calls("synchronize_device"), 0);
    assert_eq!(driver.calls("unmap"), unmaps, "pages stay where they were");
    assert!(driver.calls("map") > maps);
    let ladder = device.ladder();
    assert_eq!((ladder.misses, ladder.growth), (5, 5));
    assert_eq!((ladder.pages_new, ladder.pages_lent), (32, 13));
    assert_eq!((ladder.pages_unmapped, ladder.fence_waits), (0, 0));
    device.check_consistency().expect("consistent");
    // Nothing stays mapped that is no longer held.
    for addr in [held[1], held[3], big] {
        device.deallocate(addr);
    }
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(driver.held_virtual(0), (0, 0));
}

#[test]
fn pages_of_another_stream_are_waited_for_although_aliasing_is_allowed() {
    let (driver, device) = device_with(256 * MIB, "expandable_segments:True");
    driver.refuse_waits();
    let a = device.allocate(200 * MIB, StreamKey(1)).expect("fits");
    driver.submit(token(1));
    device.deallocate(a);
    let moved = device
        .allocate(200 * MIB, S0)
        .expect("the other stream's pages");
    assert_eq!(driver.calls("event_synchronize"), 1);
    // On the way back they were used by stream 0.
    driver.submit(token(0));
    device.deallocate(moved);
    device
        .allocate(200 * MIB, StreamKey(1))
        .expect("stream 0's pages");
    assert_eq!(driver.calls("event_synchronize"), 2);
    assert_eq!(driver.calls("synchronize_device"), 0);
    device.check_consistency().expect("consistent");
}

#[test]
fn pages_go_back_to_where_they_were_without_a_driver_call() {
    let (_, device) = device_with(256 * MIB, "expandable_segments:True");
    // Tensors that are replaced by slightly larger ones, one after the other.
    let mut tensors = blocks(&device, &[40, 40, 40, 40]);
    for step in 1..60 {
        for tensor in &mut tensors {
            let larger = device
                .allocate(40 * MIB + step * 96 * 1024, S0)
                .expect("fits");
            device.deallocate(std::mem::replace(tensor, larger));
            device.check_consistency().expect("consistent");
        }
    }
    assert!(device.ladder().pages_revived > 0);
}

#[test]
fn memory_that_moves_comes_from_low_addresses_where_aliasing_is_allowed() {
    let (_, device) = device_with(256 * MIB, "expandable_segments:True");
    let held = blocks(&device, &[64, 64, 32, 96]);
    device.deallocate(held[0]);
    device.deallocate(held[2]);
    // Nine of the twelve free pages.
    blocks(&device, &[72]);
    let misses = device.ladder().misses;
    let rest = blocks(&device, &[24])[0];
    assert_eq!((rest, device.ladder().misses), (held[2], misses));
    device.check_consistency().expect("consistent");
}

#[test]
fn memory_that_moves_widens_the_hole_it_leaves() {
    let (driver, device) = device_without_aliasing(256 * MIB);
    driver.refuse_waits();
    let held = blocks(&device, &[32, 32, 64, 64, 64]);
    let other = |size: usize| {
        let addr = device.allocate(size * MIB - 4096, StreamKey(1));
        addr.expect("the first stream's pages");
    };
    let from_cache = |size: usize| {
        let misses = device.ladder().misses;
        let addr = blocks(&device, &[size])[0];
        assert_eq!(device.ladder().misses, misses);
        addr
    };
    device.deallocate(held[2]);
    other(24);
    device.deallocate(held[0]);
    // Where the hole is, not from the block that lies lower, whose last use is over by the second request.
    other(8);
    other(8);
    assert_eq!(from_cache(32), held[0]);
    other(24);
    // From the end that borders on the hole.
    device.deallocate(held[3]);
    other(16);
    assert_eq!(from_cache(48), held[3] + 16 * MIB);
    device.check_consistency().expect("consistent");
}

#[test]
fn addresses_of_idle_ranges_are_given_back_when_they_run_out() {
    let (driver, device) = device_with(GIB, "expandable_segments:True");
    // Ranges span an eighth more than the device: room for those of one stream, and a little.
    driver.limit_addresses(0, 3 * GIB);
    for stream in 0..24 {
        let blocks = [700, 40 * MIB].map(|bytes| {
            let addr = device.allocate(bytes, StreamKey(stream));
            addr.unwrap_or_else(|error| panic!("stream {stream}: {error}"))
        });
        device.check_consistency().expect("consistent");
        assert!(blocks.iter().all(|addr| device.deallocate(*addr)));
    }
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(driver.held_virtual(0), (0, 0));
}

#[test]
fn alignments_that_are_no_powers_of_two_hold_too() {
    for kib in [3, 5, 12, 16] {
        let driver = Arc::new(FakeDriver::new(GIB));
        let text = format!("expandable_segments:True,base_addr_aligned_kb:{kib}");
        let settings = Settings::parse(&text).expect("valid");
        let device = DeviceAllocator::new(DeviceId(0), driver, settings, 0).expect("device");
        for more in 0..40 {
            let addr = device.allocate(4 * MIB + more * 512, S0).expect("fits");
            assert_eq!(addr % (kib << 10), 0, "{kib} KiB, block {more}");
            if more % 3 == 0 {
                device.allocate(3 * MIB / 2, S0).expect("fits");
            }
        }
        device.check_consistency().expect("consistent");
    }
}
