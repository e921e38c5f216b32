//! Large blocks of all streams in one list, where streams wait for each other instead of moving memory.

use crate::*;
use npualloc::config::SkippedRungs;
use npualloc::error::AllocError;

/// A process that holds all it may: the first stream has three blocks and has freed a fourth, with work under way on it; the second
/// has the fifth, in a range of its own.
fn full(aliasing: bool) -> (Arc<FakeDriver>, DeviceAllocator, [usize; 5]) {
    let (driver, device) = if aliasing {
        device_with(6 * 64 * MIB, "expandable_segments:True")
    } else {
        device_without_aliasing(6 * 64 * MIB)
    };
    device.set_memory_fraction(5.0 / 6.0).expect("valid");
    let blocks = [S1, S1, S1, S1, S2].map(|stream| allocate(&device, SIZE, stream));
    driver.submit(token(1));
    free(&device, blocks[3]);
    (driver, device, blocks)
}

/// Driver calls that move memory or wait on the host.
fn moves(driver: &FakeDriver) -> u64 {
    let calls = ["map", "unmap", "event_synchronize", "synchronize_device"];
    calls.iter().map(|call| driver.calls(call)).sum()
}

#[test]
fn another_stream_gets_a_block_and_waits_for_it_on_the_device() {
    for aliasing in [true, false] {
        let (driver, device, blocks) = full(aliasing);
        let before = moves(&driver);
        assert_eq!(allocate(&device, SIZE, S2), blocks[3]);
        assert_eq!(moves(&driver), before);
        // The streams wait for each other once as their blocks come into one list; the second for the block.
        assert!(driver.runs_after(token(2), token(1), 1));
        let view = device.describe_block(blocks[3]).expect("live");
        assert_eq!(view.stream, S2);
    }
}

#[test]
fn what_a_guest_frees_is_its_own_again_at_once_and_the_homes_after_a_wait() {
    let (driver, device, blocks) = full(true);
    allocate(&device, SIZE, S2);
    let (before, waits) = (moves(&driver), driver.calls("stream_wait"));
    driver.submit(token(2));
    free(&device, blocks[3]);
    assert_eq!(allocate(&device, SIZE, S2), blocks[3]);
    assert_eq!(driver.calls("stream_wait"), waits);
    driver.submit(token(2));
    let (work, _) = driver.progress(token(2));
    free(&device, blocks[3]);
    assert!(!driver.runs_after(token(1), token(2), work));
    assert_eq!(allocate(&device, SIZE, S1), blocks[3]);
    assert!(driver.runs_after(token(1), token(2), work));
    assert_eq!(moves(&driver), before);
}

#[test]
fn blocks_that_a_guest_freed_merge_with_the_homes_for_a_large_request() {
    let (driver, device, blocks) = full(true);
    allocate(&device, SIZE, S2);
    driver.submit(token(1));
    driver.submit(token(2));
    // One beside the other, of two streams.
    free(&device, blocks[2]);
    free(&device, blocks[3]);
    let before = moves(&driver);
    assert_eq!(allocate(&device, 2 * 64 * MIB - 4096, S1), blocks[2]);
    assert_eq!(moves(&driver), before);
}

#[test]
fn nobody_waits_for_memory_that_is_long_out_of_use() {
    let (driver, device, blocks) = full(true);
    allocate(&device, SIZE, S2);
    driver.submit(token(2));
    free(&device, blocks[3]);
    driver.finish(token(2));
    driver.finish(token(1));
    let waits = driver.calls("stream_wait");
    assert_eq!(allocate(&device, SIZE, S1), blocks[3]);
    assert_eq!(driver.calls("stream_wait"), waits);
}

#[test]
fn memory_moves_where_streams_cannot_wait_for_each_other() {
    for why in ["driver", "capture", "switch"] {
        let (driver, device, blocks) = full(true);
        match why {
            "driver" => driver.refuse_waits(),
            "capture" => device.mark_capture_begin(),
            _ => {
                let mut settings = settings("expandable_segments:True");
                settings.skipped_rungs =
                    SkippedRungs::from_environment(|_| Some("lent_blocks".to_owned()))
                        .expect("known");
                device.apply_settings(settings);
            }
        }
        assert_ne!(allocate(&device, SIZE, S2), blocks[3], "{why}");
        assert_eq!(driver.calls("stream_wait"), 0, "{why}");
    }
}

#[test]
fn a_wait_that_fails_loses_nothing() {
    let (driver, device, blocks) = full(true);
    allocate(&device, SIZE, S2);
    driver.submit(token(2));
    free(&device, blocks[3]);
    // Whichever call it is, memory is found; at the latest by a wait for the device.
    for call in 0..8 {
        driver.fail_call(call, 507_899);
        match device.allocate(SIZE, S1) {
            Ok(addr) => free(&device, addr),
            Err(AllocError::Driver(error)) => assert_eq!(error.code, 507_899),
            Err(error) => panic!("{error}"),
        }
        driver.withdraw_failure();
        device.check_consistency().expect("consistent");
    }
    allocate(&device, SIZE, S1);
}

#[test]
fn a_pool_of_its_own_keeps_its_blocks() {
    let (_, device, blocks) = full(true);
    allocate(&device, SIZE, S2);
    free(&device, blocks[3]);
    free(&device, blocks[2]);
    let id = MempoolId {
        first: 0,
        second: 1,
    };
    device.create_or_incref_pool(id, false).expect("new");
    let addr = device
        .allocate_in(SIZE, S2, id, None)
        .expect("memory of the default pool moves");
    device.check_consistency().expect("consistent");
    assert!(!blocks.contains(&addr));
}

#[test]
fn a_block_freed_while_the_lists_are_joined_is_waited_for() {
    let (driver, device) = device_with(6 * 64 * MIB, "expandable_segments:True");
    device.set_memory_fraction(5.0 / 6.0).expect("valid");
    let blocks = [S1, S1, S1, S2, S2].map(|stream| allocate(&device, SIZE, stream));
    free(&device, blocks[3]);
    let device = Arc::new(device);
    // Once the first stream has been made to wait for the second.
    let (other, submitted) = (device.clone(), driver.clone());
    driver.meanwhile("stream_wait", move || {
        submitted.submit(token(2));
        assert!(other.deallocate(blocks[4]));
    });
    let taken = [0; 2].map(|_| allocate(&device, SIZE, S1));
    assert!(taken.contains(&blocks[3]) && taken.contains(&blocks[4]));
    let (work, _) = driver.progress(token(2));
    assert!(driver.runs_after(token(1), token(2), work));
}

/// Blocks of all streams in one list: the first has the rest of a range, and has freed there what lies before the unmapped
/// addresses, with work under way on it; the second is a guest.
fn joined() -> (Arc<FakeDriver>, DeviceAllocator, usize) {
    let (driver, device) = device_with(GIB, "expandable_segments:True");
    device.share_eagerly();
    let blocks = [S1, S2, S1].map(|stream| allocate(&device, SIZE, stream));
    let last = allocate(&device, SIZE, S1);
    assert!(last > blocks[2]);
    driver.submit(token(1));
    free(&device, last);
    (driver, device, last)
}

#[test]
fn a_guest_gets_memory_of_its_own_where_it_cannot_wait_for_what_is_free() {
    // As large as what is free, larger than that, and smaller.
    for size in [SIZE, 3 * SIZE, SIZE / 2] {
        for here in [true, false] {
            let (driver, device, last) = joined();
            device.mark_capture_begin();
            // Or another thread captures.
            driver.set_capturing(here);
            let calls = moves(&driver) - driver.calls("map");
            let obtained = driver.calls("malloc_physical");
            let addr = allocate(&device, size, S2);
            assert!(addr + size <= last || last + SIZE <= addr);
            assert!(driver.calls("malloc_physical") > obtained);
            assert_eq!(moves(&driver) - driver.calls("map"), calls);
            // What was free stays free for its stream.
            assert_eq!(allocate(&device, SIZE, S1), last);
        }
    }
}

#[test]
fn pages_long_out_of_use_move_for_a_guest_that_cannot_wait() {
    let (driver, device, _) = joined();
    // That is all there is.
    device.set_memory_fraction(4.0 / 16.0).expect("valid");
    driver.finish(token(1));
    // Another thread captures.
    device.mark_capture_begin();
    let obtained = driver.calls("malloc_physical");
    allocate(&device, SIZE, S2);
    assert_eq!(driver.calls("malloc_physical"), obtained);
    assert_eq!(driver.calls("synchronize_device"), 0);
}
