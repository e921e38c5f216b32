//! What other streams and threads do to memory before its last use is over, or while the lock is released.

use npualloc::driver::PhysicalHandle;

use crate::*;

/// Blocks of `sizes` MiB less the padding, on stream 0.
fn blocks(device: &DeviceAllocator, sizes: &[usize]) -> Vec<usize> {
    sizes
        .iter()
        .map(|size| device.allocate(size * MIB - 4096, S0).expect("fits"))
        .collect()
}

/// The memory of the 26 pages from an address on.
fn handles(driver: &FakeDriver, addr: usize) -> Vec<PhysicalHandle> {
    let pages = (0..26).map(|page| driver.mapping(0, addr + page * 8 * MIB));
    let mut handles: Vec<_> = pages.map(|handle| handle.expect("mapped")).collect();
    handles.sort_unstable_by_key(|handle| handle.0);
    handles
}

#[test]
fn memory_that_was_joined_is_out_of_use_when_its_last_part_is() {
    let (driver, device) = device_without_aliasing(512 * MIB);
    let held = blocks(&device, &[64, 64, 64, 64]);
    // A hole without memory.
    device.deallocate(held[1]);
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    // On its left a block that is out of use; the pool, which is unknown, is only a reason to wait.
    device.deallocate(held[0]);
    device.empty_cache(POOL).expect("works");
    // On its right one that is not.
    driver.submit(token(0));
    device.deallocate(held[2]);
    // The hole is filled and all three are joined; 56 MiB on the right are left over.
    assert_eq!(blocks(&device, &[136]), [held[0]]);
    device.check_consistency().expect("consistent");
    assert_eq!(driver.calls("event_synchronize"), 0);
    // No more memory but what is left over, for a stream that must wait for it.
    driver.set_others(0, 256 * MIB);
    let syncs = driver.calls("synchronize_device");
    device
        .allocate(40 * MIB, StreamKey(1))
        .expect("what is left over");
    assert_eq!(driver.calls("event_synchronize"), 1);
    assert_eq!(driver.calls("synchronize_device"), syncs);
    assert_eq!(driver.progress(token(0)), (1, 1));
    device.check_consistency().expect("consistent");
}

#[test]
fn what_moves_while_the_device_is_waited_for_stays_mapped_where_it_was() {
    let (driver, device) = device_with(256 * MIB, "expandable_segments:True");
    let device = Arc::new(device);
    let old = device.allocate(200 * MIB, S0).expect("fits");
    driver.set_others(0, 48 * MIB);
    let moved = Arc::new(std::sync::OnceLock::new());
    device.create_or_incref_pool(POOL, false).expect("new");
    let (other, its_driver, its_moved) = (device.clone(), driver.clone(), moved.clone());
    driver.meanwhile("synchronize_device", move || {
        // Freed under running work, and taken by the same stream at another address, where its work is
        // in order behind that: the old range has no memory of its own any more.
        its_driver.submit(token(0));
        assert!(other.deallocate(old));
        let addr = other.allocate_in(200 * MIB, S0, POOL, None).expect("moved");
        // More work than the wait was for.
        its_driver.submit(token(0));
        its_moved.set(addr).expect("once");
    });
    let unmapped = driver.calls("unmap");
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    let moved = *moved.get().expect("happened");
    device.check_consistency().expect("consistent");
    assert_eq!(driver.calls("unmap"), unmapped, "work still runs there");
    assert_eq!(driver.calls("release_address"), 1, "of the probe alone");
    assert_eq!(handles(&driver, old), handles(&driver, moved));
    // After the next wait the mapping goes, and its range with it.
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(driver.mapping(0, old), None);
    assert_eq!(driver.calls("unmap"), unmapped + 26);
    assert_eq!(driver.calls("release_address"), 2);
    device.check_consistency().expect("consistent");
    assert!(device.deallocate(moved));
    device.release_pool(POOL).expect("in use");
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(driver.held_virtual(0), (0, 0));
}

#[test]
fn a_range_that_memory_moves_out_of_while_another_is_released_stays() {
    let (driver, device) = device_with(256 * MIB, "expandable_segments:True");
    let device = Arc::new(device);
    device.create_or_incref_pool(POOL, false).expect("new");
    for stream in [S0, StreamKey(1)] {
        let addr = device.allocate(40 * MIB, stream).expect("fits");
        assert!(device.deallocate(addr));
    }
    let (other, its_driver) = (device.clone(), driver.clone());
    driver.meanwhile("release_address", move || {
        // The second range is used, and its memory moves to a third: its pages stay mapped in it.
        let addr = other.allocate(40 * MIB, StreamKey(1)).expect("fits");
        assert!(other.deallocate(addr));
        its_driver.set_others(0, 256 * MIB);
        other
            .allocate_in(40 * MIB, StreamKey(1), POOL, None)
            .expect("moved");
    });
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert!(device.ladder().pages_lent > 0);
    device.check_consistency().expect("consistent");
    driver.set_others(0, 0);
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(
        driver.held_virtual(0).1,
        1,
        "the pool's range alone is left"
    );
    device.check_consistency().expect("consistent");
}

#[test]
fn a_segment_used_while_another_is_returned_stays() {
    for (config, fraction) in [("", 1.0), ("garbage_collection_threshold:0.05", 0.9)] {
        let (driver, device) = device_with(GIB, config);
        let device = Arc::new(device);
        device.set_memory_fraction(fraction).expect("a fraction");
        for addr in blocks(&device, &[40, 40, 40]) {
            assert!(device.deallocate(addr));
        }
        let (other, its_driver) = (device.clone(), driver.clone());
        let (used, is_used) = std::sync::mpsc::channel();
        driver.meanwhile("free", move || {
            // One of the segments left is used, and free again while its work still runs.
            let addr = blocks(&other, &[40])[0];
            its_driver.submit(token(0));
            assert!(other.deallocate(addr));
            used.send(addr).expect("somebody asks");
        });
        if config.is_empty() {
            device.empty_cache(MempoolId::DEFAULT).expect("works");
        } else {
            // Collects what is older than average.
            blocks(&device, &[42]);
        }
        let addr = is_used.recv().expect("a segment was returned");
        assert_eq!(driver.size_at(0, addr), Some(40 * MIB), "may be in use");
        assert_eq!(driver.progress(token(0)), (1, 0));
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn a_block_without_an_event_waits_for_the_synchronisation_after_its_last_use() {
    let (driver, device) = device(GIB);
    let device = Arc::new(device);
    device.create_or_incref_pool(POOL, false).expect("new");
    // Used on another stream and freed, while the event of that can't be recorded.
    let use_and_free = |device: &DeviceAllocator, driver: &FakeDriver| {
        let addr = blocks(device, &[40])[0];
        assert!(device.record_stream(addr, SIDE));
        driver.submit(SIDE);
        let records = driver.calls("event_record");
        driver.fail_call(1, 507_899);
        assert!(device.deallocate(addr));
        assert!(!driver.failure_is_planned());
        assert_eq!(driver.calls("event_record"), records + 1);
        addr
    };
    let first = use_and_free(&device, &driver);
    let (other, its_driver) = (device.clone(), driver.clone());
    driver.meanwhile("synchronize_device", move || {
        // Another thread waits for the device too, so that the block returns; it is used and freed again.
        other.empty_cache(POOL).expect("works");
        assert_eq!(use_and_free(&other, &its_driver), first);
        // Work that the wait under way is not for.
        its_driver.submit(SIDE);
    });
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_ne!(blocks(&device, &[40]), [first], "may be in use");
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(driver.size_at(0, first), None);
    device.check_consistency().expect("consistent");
}

#[test]
fn a_block_whose_event_was_told_of_too_early_waits_for_it() {
    let (driver, device) = device(170 * MIB);
    let device = Arc::new(device);
    let first = device.allocate(100 * MIB, S0).expect("fits");
    let second = device.allocate(60 * MIB, S0).expect("fits");
    for addr in [first, second] {
        assert!(device.record_stream(addr, SIDE));
    }
    driver.submit(SIDE);
    let (other, its_driver) = (device.clone(), driver.clone());
    driver.meanwhile_recorded(move || {
        // The event of another thread's block is recorded after that of the first one, and told of before it.
        its_driver.submit(SIDE);
        assert!(other.deallocate(second));
    });
    assert!(device.deallocate(first));
    // The first block is waited for, the second one is still in use.
    assert_eq!(device.allocate(100 * MIB, S0).expect("fits"), first);
    assert_eq!(driver.progress(SIDE), (2, 1));
    device.check_consistency().expect("consistent");
    assert_eq!(device.allocate(60 * MIB, S0).expect("fits"), second);
    assert_eq!(driver.progress(SIDE), (2, 2));
    device.check_consistency().expect("consistent");
}

#[test]
fn nobody_waits_for_what_was_recorded_before_a_device_was_reset() {
    let (driver, device) = device_without_aliasing(80 * MIB);
    let exactly = |size: usize, stream| device.allocate(size * MIB - 32, stream).expect("fits");
    let (idle, _, mut large) = (exactly(8, S0), exactly(8, S0), exactly(32, S0));
    for _ in 0..40 {
        assert!(device.deallocate(large));
        large = exactly(32, S0);
    }
    // What the other stream had is out of use; the pool, which is unknown, is only a reason to wait.
    assert!(device.deallocate(exactly(32, StreamKey(1))));
    device.empty_cache(POOL).expect("works");
    driver.submit(token(0));
    assert!(device.deallocate(idle) && device.deallocate(large));
    // One page comes from there, and an event is recorded for who needs what this stream freed.
    let recorded = driver.calls("event_record");
    assert_eq!(exactly(40, S0), large);
    assert_eq!(driver.calls("event_record"), recorded + 1);
    // That event never completes: another one is waited for.
    device.drop_pending_events();
    driver.submit(token(0));
    exactly(32, StreamKey(1));
    assert_eq!(driver.progress(token(0)), (2, 2));
    device.check_consistency().expect("consistent");
}
