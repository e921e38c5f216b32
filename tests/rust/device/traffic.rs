//! Many frees of blocks that other streams use: they have events in common, and not every allocation asks.

use crate::*;
use npualloc::device::DeviceAllocator;

const OTHER: StreamToken = StreamToken {
    id: 9,
    device: 0,
    reserved: 0,
};

/// Frees with uses until events are put off, whose work is done.
fn make_heavy(driver: &FakeDriver, device: &DeviceAllocator) {
    for _ in 0..16 {
        free_used(device, &[SIDE]);
    }
    driver.finish(SIDE);
    device.allocate(512, S0).expect("fits");
    assert_eq!(driver.calls("event_record"), 16, "one each until then");
}

fn free_used(device: &DeviceAllocator, streams: &[StreamToken]) -> usize {
    let addr = device.allocate(30 * MIB, S0).expect("fits");
    for stream in streams {
        device.record_stream(addr, *stream);
    }
    device.deallocate(addr);
    addr
}

/// Lets the allocations pass that do not ask.
fn pass(device: &DeviceAllocator) {
    for _ in 0..32 {
        device.allocate(512, S0).expect("fits");
    }
}

/// Lets one allocation after another ask until one has events recorded.
fn pass_until_recorded(device: &DeviceAllocator) {
    for _ in 0..8 {
        pass(device);
    }
}

/// Frees three blocks of `bytes` that the streams use, before any of them returns.
fn free_three(device: &DeviceAllocator, bytes: usize, streams: &[StreamToken]) -> [usize; 3] {
    let blocks = [0; 3].map(|_| device.allocate(bytes, S0).expect("fits"));
    for addr in blocks {
        for stream in streams {
            device.record_stream(addr, *stream);
        }
        device.deallocate(addr);
    }
    blocks
}

#[test]
fn frees_share_an_event_and_return_when_it_has_completed() {
    let (driver, device) = device(GIB);
    make_heavy(&driver, &device);
    driver.submit(SIDE);
    let blocks = free_three(&device, 2 * MIB, &[SIDE]);
    pass(&device);
    assert_eq!(driver.calls("event_record"), 16, "they wait for more");
    pass_until_recorded(&device);
    assert_eq!(driver.calls("event_record"), 17);
    let queries = driver.calls("event_query");
    driver.finish(SIDE);
    pass(&device);
    assert_eq!(driver.calls("event_query"), queries + 1);
    device.check_consistency().expect("consistent");
    let again = [0; 3].map(|_| device.allocate(2 * MIB, S0).expect("fits"));
    assert_eq!(again, blocks);
    // The events are used again, none of them twice at a time.
    for stream in [SIDE, OTHER] {
        free_used(&device, &[stream]);
    }
    pass_until_recorded(&device);
    device.check_consistency().expect("consistent");
    assert!(driver.calls("event_create") <= 16);
}

#[test]
fn a_block_waits_for_the_event_of_each_of_its_streams() {
    let (driver, device) = device(GIB);
    make_heavy(&driver, &device);
    driver.submit(SIDE);
    driver.submit(OTHER);
    let blocks = free_three(&device, 2 * MIB, &[SIDE, OTHER]);
    pass_until_recorded(&device);
    assert_eq!(driver.calls("event_record"), 18);
    driver.finish(SIDE);
    pass(&device);
    device.check_consistency().expect("consistent");
    let early = device.allocate(2 * MIB, S0).expect("fits");
    assert!(!blocks.contains(&early));
    driver.finish(OTHER);
    pass(&device);
    assert!(blocks.contains(&device.allocate(2 * MIB, S0).expect("fits")));
}

#[test]
fn a_block_that_comes_and_goes_does_not_keep_others_waiting() {
    for engine in ["", "expandable_segments:True", "expandable_segments:False"] {
        let driver = Arc::new(FakeDriver::new(GIB));
        let settings = settings_by_default(engine);
        let device =
            DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device");
        make_heavy(&driver, &device);
        // Of a size that comes back, so that it is kept where blocks are.
        let come_and_go = || {
            let addr = device.allocate(3000, S0).expect("fits");
            assert!(device.deallocate(addr));
        };
        come_and_go();
        let blocks = free_three(&device, 2 * MIB, &[SIDE]);
        for _ in 0..1100 {
            come_and_go();
        }
        let waiting = |device: &DeviceAllocator| {
            let (stats, _) = device.stats();
            stats.active_bytes.current() - stats.allocated_bytes.current()
        };
        assert_eq!(waiting(&device), 0, "{engine:?}");
        assert!(blocks.contains(&device.allocate(2 * MIB, S0).expect("fits")));
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn who_finds_nothing_free_asks_at_once() {
    let (driver, device) = device(35 * MIB);
    make_heavy(&driver, &device);
    // Nothing is left free in the one segment, and there is room for no other.
    device.allocate(16 * MIB, S0).expect("fits");
    let blocks = free_three(&device, 5 * MIB, &[SIDE]);
    let records = driver.calls("event_record");
    let again = device.allocate(5 * MIB, S0).expect("fits");
    assert!(blocks.contains(&again), "memory that is out of use");
    assert!(driver.calls("event_record") <= records + 1);
    assert_eq!(driver.calls("synchronize_device"), 0);
}

#[test]
fn much_memory_is_not_kept_waiting() {
    let (driver, device) = device(GIB);
    make_heavy(&driver, &device);
    free_used(&device, &[SIDE]);
    assert_eq!(driver.calls("event_record"), 17, "30 MiB");
}

#[test]
fn after_a_look_events_are_recorded_at_once_and_asked_every_time() {
    let (driver, device) = device(GIB);
    make_heavy(&driver, &device);
    device.stats();
    driver.submit(SIDE);
    let blocks = free_three(&device, 2 * MIB, &[SIDE]);
    assert_eq!(driver.calls("event_record"), 19);
    driver.finish(SIDE);
    assert!(blocks.contains(&device.allocate(2 * MIB, S0).expect("fits")));
}

#[test]
fn erased_uses_return_blocks_before_and_after_the_event_is_recorded() {
    for recorded in [false, true] {
        for erased in 0..3 {
            let (driver, device) = device(GIB);
            make_heavy(&driver, &device);
            driver.submit(SIDE);
            let taken = [0; 3].map(|_| device.allocate(2 * MIB, S0).expect("fits"));
            let handle = device.describe_block(taken[erased]).expect("live").handle;
            make_heavy_again(&device);
            for addr in taken {
                device.record_stream(addr, SIDE);
                device.deallocate(addr);
            }
            if recorded {
                pass_until_recorded(&device);
            }
            assert!(device.erase_stream_of(handle, SIDE));
            device.check_consistency().expect("consistent");
            assert_eq!(device.allocate(2 * MIB, S0).expect("fits"), taken[erased]);
            driver.finish(SIDE);
            pass_until_recorded(&device);
            pass(&device);
            device.check_consistency().expect("consistent");
            let mut back = [0; 2].map(|_| device.allocate(2 * MIB, S0).expect("fits"));
            back.sort_unstable();
            let mut others: Vec<usize> = taken.to_vec();
            others.remove(erased);
            others.sort_unstable();
            assert_eq!(back[..], others[..], "{erased} of {recorded}");
        }
    }
}

/// After a look: the work of these frees is over at once.
fn make_heavy_again(device: &DeviceAllocator) {
    for _ in 0..16 {
        let addr = device.allocate(512, S0).expect("fits");
        device.record_stream(addr, OTHER);
        device.deallocate(addr);
    }
}

#[test]
fn when_the_common_event_fails_all_wait_for_the_device() {
    let (driver, device) = device(GIB);
    make_heavy(&driver, &device);
    let blocks = free_three(&device, 2 * MIB, &[SIDE]);
    // Asked before: whether a capture goes on.
    (0..7).for_each(|_| pass(&device));
    assert_eq!(driver.calls("event_record"), 16);
    driver.fail_call(1, 107_000);
    pass(&device);
    assert_eq!(driver.calls("event_record"), 17);
    device.check_consistency().expect("consistent");
    let other = device.allocate(2 * MIB, S0).expect("fits");
    assert!(!blocks.contains(&other));
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    device.check_consistency().expect("consistent");
    assert_eq!(
        device.stats().0.active.current(),
        device.stats().0.allocation.current()
    );
}

#[test]
fn while_memory_is_ample_more_blocks_share_an_event() {
    for (live, config, expected) in [
        (GIB, "", 2),
        (15 * GIB, "", 4),
        (GIB, "expandable_segments:True", 4),
        (GIB, "expandable_segments:False", 4),
    ] {
        let (driver, settings) = (
            Arc::new(FakeDriver::new(16 * GIB)),
            settings_by_default(config),
        );
        let device = DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32);
        let device = device.expect("device");
        device.allocate(live, S0).expect("fits");
        make_heavy(&driver, &device);
        // One of these asks, and knows then how much memory there is.
        pass(&device);
        let before = driver.calls("event_record");
        for _ in 0..64 {
            let addr = device.allocate(64 << 10, S0).expect("fits");
            device.record_stream(addr, SIDE);
            device.deallocate(addr);
        }
        let recorded = driver.calls("event_record") - before;
        assert_eq!(recorded, expected, "{live} {config}");
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn once_memory_was_short_events_do_not_wait_for_more_blocks() {
    let (driver, device) = device(GIB);
    assert!(device.allocate(2 * GIB, S0).is_err());
    make_heavy(&driver, &device);
    free_three(&device, 2 * MIB, &[SIDE]);
    assert_eq!(driver.calls("event_record"), 16);
    pass(&device);
    assert_eq!(driver.calls("event_record"), 17);
}
