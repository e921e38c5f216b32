//! What is left behind by calls that fail, or come to an end half way: tests.

use std::sync::Arc;

use super::races::{MIB, device};
use crate::device::DeviceAllocator;
use crate::driver::fake::FakeDriver;
use crate::error::AllocError;
use crate::ids::{MempoolId, StreamKey};

const HOME: StreamKey = StreamKey(1);
const OTHER: StreamKey = StreamKey(2);
const POOL: MempoolId = MempoolId {
    first: 0,
    second: 7,
};

/// A pool that was woken in part, whose blocks are free and that has no user any more.
fn half_awake() -> (Arc<FakeDriver>, Arc<DeviceAllocator>) {
    let (driver, device) = device(256 * MIB, "expandable_segments:True");
    device.create_or_incref_pool(POOL, false).expect("new");
    let addr = device
        .allocate_in(200 * MIB - 4096, HOME, POOL, None)
        .expect("fits");
    device.sleep(Some(POOL)).expect("sleeps");
    // Another process has most of the device: half of the pool wakes up.
    driver.set_others(0, 156 * MIB);
    assert!(device.wake_up(Some(POOL)).is_err());
    assert_eq!(driver.mapped_bytes(0), 100 * MIB);
    driver.set_others(0, 0);
    assert!(device.deallocate(addr));
    device.release_pool(POOL).expect("there");
    (driver, device)
}

#[test]
fn what_woke_up_in_part_is_given_back_by_empty_cache() {
    let (driver, device) = half_awake();
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(driver.held_virtual(0), (0, 0));
    assert!(!device.has_pool(POOL));
}

#[test]
fn what_woke_up_in_part_serves_a_request_that_lacks_memory() {
    let (_driver, device) = half_awake();
    device
        .allocate(200 * MIB - 4096, OTHER)
        .expect("nothing is in use");
}

#[test]
fn a_request_that_waits_for_another_thread_counts_one_retry() {
    let (driver, device) = device(64 * MIB, "expandable_segments:False");
    device.allocate(40 * MIB, HOME).expect("fits");
    let other = device.clone();
    driver.meanwhile("malloc", move || {
        // Larger than the device, while this thread is obtaining 2 MiB.
        assert!(other.allocate(100 * MIB, OTHER).is_err());
    });
    device.allocate(1000, HOME).expect("fits");
    let (stats, _) = device.stats();
    assert_eq!((stats.num_ooms, stats.num_alloc_retries), (1, 1));
}

#[test]
fn a_failed_wait_for_the_device_reaches_the_program_and_does_not_end_virtual_segments() {
    let (driver, device) = device(64 * MIB, "");
    let first = device.allocate(30 * MIB, HOME).expect("fits");
    let failing = driver.clone();
    driver.meanwhile("synchronize_device", move || failing.fail_call(0, 507_015));
    let failed = device.allocate(60 * MIB, HOME).expect_err("too large");
    assert!(
        matches!(failed, AllocError::Driver(error) if error.code == 507_015),
        "{failed}"
    );
    assert!(device.deallocate(first));
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    device.allocate(10 * MIB, OTHER).expect("fits");
    assert_eq!(driver.held(0).0, 0, "no fixed segment");
}

#[test]
fn a_free_memory_callback_that_throws_does_not_end_virtual_segments() {
    let (driver, device) = device(64 * MIB, "");
    let first = device.allocate(10 * MIB, HOME).expect("fits");
    let failing = driver.clone();
    // As the plug-in tells of an exception.
    driver.meanwhile("run_free_callbacks", move || failing.fail_call(0, -2));
    let failed = device.allocate(20 * MIB, HOME).expect_err("it throws");
    assert!(
        matches!(failed, AllocError::Driver(error) if error.code == -2),
        "{failed}"
    );
    assert!(!driver.failure_is_planned());
    assert!(device.deallocate(first));
    device.allocate(12 * MIB, OTHER).expect("fits");
    assert!(device.state.lock().paging.virtual_memory);
}

/// Segments that go back to the driver the second time memory is short.
fn freed_by_the_second_shortage(reset: bool) -> u64 {
    let (driver, device) = device(64 * MIB, "expandable_segments:False");
    let mut freed = 0;
    for round in 0..2 {
        let blocks = [12, 12, 12].map(|mib| device.allocate(mib * MIB - 4096, HOME).expect("fits"));
        let large = device.allocate(24 * MIB - 4096, OTHER).expect("fits");
        for addr in blocks {
            assert!(device.deallocate(addr));
        }
        let before = driver.calls("free");
        let last = device.allocate(10 * MIB - 4096, OTHER).expect("fits");
        freed = driver.calls("free") - before;
        for addr in [large, last] {
            assert!(device.deallocate(addr));
        }
        device.empty_cache(MempoolId::DEFAULT).expect("works");
        if reset && round == 0 {
            device.reset_accumulated_stats();
        }
    }
    freed
}

#[test]
fn resetting_statistics_changes_nothing_else() {
    // All that are idle; as many as are needed would be two.
    assert_eq!([true, false].map(freed_by_the_second_shortage), [3, 3]);
}

#[test]
fn a_refused_free_leaves_what_was_counted() {
    let (driver, device) = device(64 * MIB, "expandable_segments:False,max_split_size_mb:20");
    let addr = device.allocate(30 * MIB, HOME).expect("fits");
    assert!(device.deallocate(addr));
    let (before, _) = device.stats();
    let failing = driver.clone();
    driver.meanwhile("free", move || failing.fail_call(0, 507_000));
    assert!(device.empty_cache(MempoolId::DEFAULT).is_err());
    let (after, _) = device.stats();
    assert_eq!(after.segment.aggregate(), before.segment.aggregate());
    assert_eq!(
        after.reserved_bytes.aggregate(),
        before.reserved_bytes.aggregate()
    );
    assert_eq!(before.oversize_segments.current, 1);
    assert_eq!(after.oversize_segments, before.oversize_segments);
}

#[test]
fn a_refused_free_leaves_what_was_counted_for_a_private_pool() {
    let (driver, device) = device(64 * MIB, "expandable_segments:False");
    device.create_or_incref_pool(POOL, false).expect("new");
    let addr = device
        .allocate_in(30 * MIB, HOME, POOL, None)
        .expect("fits");
    assert!(device.deallocate(addr));
    device.release_pool(POOL).expect("there");
    let reserved = || {
        let state = device.state.lock();
        let mut all = state.pools.reserved();
        all.find(|(id, _)| *id == POOL).map(|(_, stat)| *stat)
    };
    let before = reserved();
    assert!(before.is_some_and(|stat| stat.current() > 0));
    let failing = driver.clone();
    driver.meanwhile("free", move || failing.fail_call(0, 507_000));
    assert!(device.empty_cache(MempoolId::DEFAULT).is_err());
    assert_eq!(reserved(), before);
}

#[test]
fn a_pool_that_woke_up_in_part_wakes_up_with_what_it_gave_back() {
    let (driver, device) = device(256 * MIB, "expandable_segments:True");
    let [one, two] = [80, 80].map(|mib| device.allocate(mib * MIB - 4096, HOME).expect("fits"));
    device.sleep(None).expect("sleeps");
    driver.set_others(0, 156 * MIB);
    assert!(device.wake_up(None).is_err());
    assert_eq!(driver.mapped_bytes(0), 100 * MIB);
    assert!(device.deallocate(one.min(two)));
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    device
        .wake_up(None)
        .expect("80 MiB are needed, 100 were there");
    device.check_consistency().expect("consistent");
}

#[test]
fn a_failed_mapping_call_ends_virtual_segments() {
    for call in ["malloc_physical", "map"] {
        let (driver, device) = device(256 * MIB, "");
        device.allocate(1000, HOME).expect("fits");
        let failing = driver.clone();
        driver.meanwhile(call, move || failing.fail_call(0, 507_899));
        device
            .allocate(20 * MIB, HOME)
            .expect("fixed segments serve");
        assert!(!driver.failure_is_planned(), "{call}");
        assert!(!device.state.lock().paging.virtual_memory, "{call}");
    }
}

#[test]
fn a_pool_s_own_allocator_that_fails_once_is_asked_again_after_memory_went_back() {
    for settings in ["expandable_segments:False", "expandable_segments:True"] {
        let (driver, device) = device(256 * MIB, settings);
        device.choose_engine();
        device.create_or_incref_pool(POOL, true).expect("new");
        let cached = device.allocate(200 * MIB, HOME).expect("fits");
        assert!(device.deallocate(cached));
        // Its exceptions have a code of their own.
        let failing = driver.clone();
        driver.meanwhile("malloc", move || failing.fail_call(0, -2));
        device
            .allocate_in(40 * MIB, OTHER, POOL, None)
            .expect("asked again");
        device.check_consistency().expect("consistent");
    }
}
