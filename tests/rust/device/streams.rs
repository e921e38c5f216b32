//! Uses on other streams, events, captures.

use crate::*;

#[test]
fn a_stream_never_gets_another_streams_block() {
    let (driver, device) = device(GIB);
    let a = device.allocate(MIB, S0).expect("fits");
    device.deallocate(a);
    let b = device.allocate(MIB, StreamKey(9)).expect("fits");
    assert_ne!(a, b);
    assert_eq!(driver.held(0).0, 2);
}

#[test]
fn a_recorded_stream_delays_reuse_until_its_work_is_done() {
    let (driver, device) = device(GIB);
    let a = device.allocate(30 * MIB, S0).expect("fits");
    assert!(device.record_stream(a, SIDE));
    driver.submit(SIDE);
    device.deallocate(a);
    let (stats, _) = device.stats();
    assert_eq!((stats.allocation.current(), stats.active.current()), (0, 1));
    let b = device.allocate(30 * MIB, S0).expect("fits");
    assert_ne!(a, b);
    driver.finish(SIDE);
    let c = device.allocate(30 * MIB, S0).expect("fits");
    assert_eq!(a, c);
    device.check_consistency().expect("consistent");
}

#[test]
fn an_erased_stream_does_not_delay() {
    let (driver, device) = device(GIB);
    let a = device.allocate(30 * MIB, S0).expect("fits");
    device.record_stream(a, SIDE);
    driver.submit(SIDE);
    device.erase_stream(a, SIDE);
    device.deallocate(a);
    assert_eq!(device.allocate(30 * MIB, S0).expect("fits"), a);
    assert_eq!(driver.calls("event_record"), 0);
}

#[test]
fn a_handle_outlives_the_free_until_the_events_are_over() {
    let (driver, device) = device(GIB);
    let a = device.allocate(30 * MIB, S0).expect("fits");
    let handle = device.describe_block(a).expect("live").handle;
    device.record_stream(a, SIDE);
    driver.submit(SIDE);
    device.deallocate(a);
    assert_eq!(device.describe_handle(handle).expect("pending").addr, a);
    // The client knows that the side stream is done: no waiting.
    assert!(device.erase_stream_of(handle, SIDE));
    device.check_consistency().expect("consistent");
    assert_eq!(device.allocate(30 * MIB, S0).expect("fits"), a);
    assert!(
        device.describe_handle(handle).is_none(),
        "the handle of a former tenant"
    );
    assert!(!device.erase_stream_of(handle, SIDE));
}

#[test]
fn during_a_capture_events_wait_until_it_has_ended() {
    let (driver, device) = device(GIB);
    let a = device.allocate(30 * MIB, S0).expect("fits");
    let b = device.allocate(30 * MIB, S0).expect("fits");
    device.record_stream(a, SIDE);
    device.mark_capture_begin();
    driver.set_capturing(true);
    device.record_stream(b, SIDE);
    driver.submit(SIDE);
    device.deallocate(a);
    device.deallocate(b);
    device.check_consistency().expect("consistent");
    device.allocate(100, S0).expect("fits");
    assert_eq!(
        driver.calls("event_record") + driver.calls("event_query"),
        0
    );
    driver.set_capturing(false);
    device.mark_capture_end().expect("under way");
    // b was used on the side stream within the capture only: it is free at once. a needs its event.
    device.allocate(100, S0).expect("fits");
    assert_eq!(driver.calls("event_record"), 1);
    assert_eq!(device.allocate(30 * MIB, S0).expect("fits"), b);
    driver.finish(SIDE);
    assert_eq!(device.allocate(30 * MIB, S0).expect("fits"), a);
    device.check_consistency().expect("consistent");
}

/// Blocks up to 64 MiB replaced at random on two streams of a device that is nearly full. Returns how often
/// the device was waited for.
fn churn(seed: u64, unnamed: bool) -> u64 {
    let (driver, device) = device_with(GIB, "expandable_segments:True");
    if unnamed {
        driver.unname(S0);
        driver.unname(StreamKey(7));
    }
    let mut seed = seed;
    let mut below = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % n
    };
    let mut live: Vec<(usize, usize)> = Vec::new();
    for step in 0..3000 {
        let size = (1 + below(63) as usize) * MIB;
        while live.iter().map(|(_, size)| size).sum::<usize>() + size > 800 * MIB {
            let (addr, _) = live.swap_remove(below(live.len() as u64) as usize);
            assert!(device.deallocate(addr));
        }
        let stream = if below(4) == 0 { StreamKey(7) } else { S0 };
        let token = StreamToken {
            id: stream.0 as i64,
            ..SIDE
        };
        driver.submit(token);
        match device.allocate(size, stream) {
            Ok(addr) => live.push((addr, size)),
            Err(error) => panic!("step {step}, {size} bytes: {error}"),
        }
    }
    device.check_consistency().expect("consistent");
    driver.calls("synchronize_device")
}

#[test]
fn streams_that_no_event_can_be_recorded_on_are_waited_for_by_the_device() {
    for seed in 0..4 {
        assert_eq!(churn(seed, false), 0, "seed {seed}");
        assert!(churn(seed, true) > 0, "seed {seed}");
    }
}

/// The default stream, for others.
const DEFAULT: StreamToken = StreamToken { id: 0, ..SIDE };
/// The stream of the block that waits.
const OWN: StreamKey = StreamKey(5);

/// A device with a block of 400 MiB of another stream to take pages from, where `size` MiB were freed that `user`
/// still uses. Returns the block's address.
fn with_a_block_that_waits(
    config: &str,
    size: usize,
    user: StreamToken,
) -> (Arc<FakeDriver>, DeviceAllocator, usize) {
    let (driver, device) = device_with(GIB, config);
    let other = device.allocate(400 * MIB, StreamKey(1)).expect("fits");
    let block = device.allocate(size * MIB, OWN).expect("fits");
    device.deallocate(other);
    device.record_stream(block, user);
    driver.submit(user);
    device.deallocate(block);
    (driver, device, block)
}

#[test]
fn a_block_that_other_streams_use_is_waited_for_rather_than_many_pages_moved() {
    // While there is more memory only the default stream is waited for.
    for (user, limit, waits) in [
        (DEFAULT, 1.0, true),
        (SIDE, 1.0, false),
        (DEFAULT, 0.8, true),
        (SIDE, 0.8, true),
    ] {
        let (driver, device, block) =
            with_a_block_that_waits("expandable_segments:True", 400, user);
        device.set_memory_fraction(limit).expect("valid");
        let maps = driver.calls("map");
        let addr = device.allocate(400 * MIB, OWN).expect("room");
        assert_eq!(addr == block, waits, "{user:?}, {limit}");
        assert_eq!(driver.calls("map") == maps, waits);
        assert_eq!(device.ladder().awaited_events, u64::from(waits));
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn few_pages_are_moved_rather_than_a_block_waited_for() {
    let (_, device, block) = with_a_block_that_waits("expandable_segments:True", 600, DEFAULT);
    let small = device.allocate(30 * MIB, OWN).expect("moves");
    assert_ne!(small, block);
    assert_eq!(device.ladder().awaited_events, 0);
    device.check_consistency().expect("consistent");
}

#[test]
fn a_block_that_other_streams_use_is_waited_for_before_the_device() {
    let (driver, device, block) = with_a_block_that_waits("", 600, SIDE);
    assert_eq!(device.allocate(600 * MIB, OWN).expect("waits"), block);
    assert_eq!(driver.calls("event_synchronize"), 1);
    assert_eq!(driver.calls("synchronize_device"), 0);
    device.check_consistency().expect("consistent");
}

#[test]
fn after_a_failed_wait_the_block_waits_on() {
    const CODE: i32 = 507_899;
    let mut failures = 0;
    for at in 0.. {
        let (driver, device, block) =
            with_a_block_that_waits("expandable_segments:True", 400, DEFAULT);
        driver.fail_call(at, CODE);
        let first = device.allocate(400 * MIB, OWN);
        device.check_consistency().expect("consistent");
        if driver.withdraw_failure() {
            assert_eq!(first.expect("no call failed"), block);
            break;
        }
        if let Err(error) = first {
            assert!(error.to_string().contains("507899"), "{error}");
            assert_eq!(device.allocate(400 * MIB, OWN).expect("waits"), block);
            failures += 1;
        }
    }
    assert!(failures > 0);
}

#[test]
fn what_a_capture_uses_is_nobodys_until_it_has_ended() {
    let (driver, device) = device(GIB);
    let used = device.allocate(30 * MIB, S0).expect("fits");
    device.mark_capture_begin();
    driver.set_capturing(true);
    device.record_stream(used, SIDE);
    device.deallocate(used);
    // Another thread, which does not capture, looks what is over.
    driver.set_capturing(false);
    assert_ne!(device.allocate(30 * MIB, S0).expect("fits"), used);
    device.check_consistency().expect("consistent");
    device.mark_capture_end().expect("under way");
    assert_eq!(device.allocate(30 * MIB, S0).expect("fits"), used);
    device.check_consistency().expect("consistent");
}

#[test]
fn no_event_is_recorded_on_a_stream_that_another_thread_captures() {
    let (driver, device) = device(GIB);
    let used = device.allocate(30 * MIB, S0).expect("fits");
    device.record_stream(used, SIDE);
    driver.submit(SIDE);
    // Another thread captures, this one frees and allocates.
    device.mark_capture_begin();
    driver.capture(Some(SIDE));
    device.deallocate(used);
    let other = device.allocate(30 * MIB, S0).expect("fits");
    assert_ne!(other, used);
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(driver.calls("event_record"), 0);
    device.check_consistency().expect("consistent");
    driver.submit(SIDE);
    driver.capture(None);
    device.mark_capture_end().expect("under way");
    assert_ne!(device.allocate(30 * MIB, S0).expect("fits"), used);
    driver.finish(SIDE);
    assert_eq!(device.allocate(30 * MIB, S0).expect("fits"), used);
    device.check_consistency().expect("consistent");
}

#[test]
fn another_threads_capture_holds_up_no_use_outside_it() {
    let (driver, device) = device(GIB);
    let used = device.allocate(30 * MIB, S0).expect("fits");
    device.record_stream(used, SIDE);
    device.mark_capture_begin();
    driver.capture(Some(StreamToken { id: 9, ..SIDE }));
    device.deallocate(used);
    assert_eq!(device.allocate(30 * MIB, S0).expect("fits"), used);
    assert_eq!(driver.calls("event_record"), 1);
    device.check_consistency().expect("consistent");
}

#[test]
fn a_stream_that_another_thread_may_capture_is_not_waited_for() {
    // Pages of the request's own size, and smaller ones.
    for (count, size) in [(1, 600 * MIB), (400, MIB - 4096)] {
        let (driver, device) = device_with(4 * GIB, "expandable_segments:True");
        let theirs = StreamToken { id: 1, ..SIDE };
        let others: Vec<usize> = (0..count)
            .map(|_| device.allocate(size, StreamKey(1)).expect("fits"))
            .collect();
        driver.submit(theirs);
        others
            .iter()
            .for_each(|&addr| assert!(device.deallocate(addr)));
        device.mark_capture_begin();
        device.allocate(400 * MIB, S0).expect("fits");
        assert_eq!(driver.calls("event_synchronize"), 0, "{size}");
        assert_eq!(driver.progress(theirs), (1, 0), "{size}");
        device.mark_capture_end().expect("under way");
        device.check_consistency().expect("consistent");
    }
}

/// Frees `count` small blocks that another stream uses, then a large one, all of whose work is over at once.
fn free_many(driver: &FakeDriver, device: &DeviceAllocator, count: usize) -> usize {
    let mut blocks: Vec<usize> = (0..count)
        .map(|_| device.allocate(MIB / 4, S0).expect("fits"))
        .collect();
    blocks.push(device.allocate(100 * MIB, S0).expect("fits"));
    driver.submit(SIDE);
    for &addr in &blocks {
        device.record_stream(addr, SIDE);
        assert!(device.deallocate(addr));
    }
    driver.finish(SIDE);
    blocks[count]
}

#[test]
fn a_request_that_nothing_free_serves_gets_every_block_whose_work_is_over() {
    for config in ["", "multi_stream_lazy_reclaim:True"] {
        let (driver, device) = device_with(GIB, config);
        let large = free_many(&driver, &device, 300);
        let held = driver.held(0);
        let again = device.allocate(100 * MIB, S0).expect("fits");
        assert_eq!((again, driver.held(0)), (large, held), "{config}");
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn blocks_that_return_lazily_do_not_become_more_and_more() {
    for (count, all_wait) in [(300, true), (700, false)] {
        let (driver, device) = device_with(GIB, "multi_stream_lazy_reclaim:True");
        // A miss would ask.
        let cached = device.allocate(2 * MIB, StreamKey(1)).expect("fits");
        device.deallocate(cached);
        free_many(&driver, &device, count);
        let before = device.stats().0.active.current();
        for _ in 0..64 {
            let addr = device.allocate(2 * MIB, StreamKey(1)).expect("cached");
            device.deallocate(addr);
        }
        let after = device.stats().0.active.current();
        assert_eq!(after == before, all_wait, "{count}: {before} {after}");
        assert!(after <= 513, "{after}");
        device.check_consistency().expect("consistent");
    }
}
