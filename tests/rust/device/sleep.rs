//! Sleep: physical memory goes back while addresses stay.

use super::*;
use npualloc::error::AllocError;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const VIRTUAL: &str = "expandable_segments:True";
const FAILURE: i32 = 507_899;

fn pool_address(device: &DeviceAllocator, bytes: usize) -> usize {
    device.allocate_in(bytes, S0, POOL, None).unwrap()
}

#[test]
fn memory_goes_back_and_addresses_stay() {
    let (driver, device) = device_with(GIB, VIRTUAL);
    let large = device.allocate(100 * MIB, S0).unwrap();
    let small = device.allocate(700, S0).unwrap();
    let idle = device.allocate(60 * MIB, S0).unwrap();
    assert!(device.deallocate(idle));
    let (_, ranges) = driver.held_virtual(0);
    let slept = device.sleep(None).unwrap();
    // 100 MiB and the padding in pages of 8 MiB, and a page of 2 MiB.
    assert_eq!(slept, 104 * MIB + 2 * MIB);
    assert_eq!(device.asleep_bytes(), slept);
    assert_eq!(driver.held_virtual(0), (0, ranges));
    device.check_consistency().unwrap();
    assert_eq!(device.wake_up(None).unwrap(), slept);
    assert_eq!(device.asleep_bytes(), 0);
    assert_eq!(driver.mapped_bytes(0), slept);
    assert!(
        driver.mapping(0, large).is_some(),
        "memory at the block's own place"
    );
    device.check_consistency().unwrap();
    for addr in [large, small] {
        assert!(device.deallocate(addr));
    }
    device.empty_cache(MempoolId::DEFAULT).unwrap();
    assert_eq!((driver.held(0), driver.held_virtual(0)), ((0, 0), (0, 0)));
}

#[test]
fn who_sleeps_serves_nobody_and_takes_blocks_back() {
    let (driver, device) = device_with(GIB, VIRTUAL);
    let block = device.allocate(10 * MIB, S0).unwrap();
    let other = device.allocate(10 * MIB, S0).unwrap();
    device.sleep(None).unwrap();
    let error = device.allocate(MIB, S0).unwrap_err();
    assert!(matches!(error, AllocError::Sleep { .. }), "{error}");
    assert!(error.to_string().contains("asleep"), "{error}");
    assert_eq!(device.sleep(None).unwrap(), 0, "it sleeps already");
    assert!(device.deallocate(block));
    device.empty_cache(MempoolId::DEFAULT).unwrap();
    device.check_consistency().unwrap();
    device.wake_up(None).unwrap();
    assert_eq!(device.allocate(10 * MIB, S0).unwrap(), block);
    assert!(device.deallocate(block) && device.deallocate(other));
    device.empty_cache(MempoolId::DEFAULT).unwrap();
    assert_eq!(driver.held_virtual(0), (0, 0));
}

#[test]
fn a_pool_sleeps_alone() {
    let (driver, device) = device_with(GIB, VIRTUAL);
    device.create_or_incref_pool(POOL, false).unwrap();
    let default = device.allocate(40 * MIB, S0).unwrap();
    let private = pool_address(&device, 40 * MIB);
    let before = driver.mapped_bytes(0);
    let slept = device.sleep(Some(POOL)).unwrap();
    assert_eq!(slept, 48 * MIB);
    assert_eq!(driver.mapped_bytes(0), before - slept);
    assert!(device.allocate_in(MIB, S0, POOL, None).is_err());
    // What it gave up serves others, up to the last byte.
    let rest = device.allocate(GIB - 64 * MIB, S0).unwrap();
    device.check_consistency().unwrap();
    let error = device.wake_up(Some(POOL)).unwrap_err();
    assert!(matches!(error, AllocError::Driver(_)), "{error}");
    device.check_consistency().unwrap();
    assert!(device.deallocate(rest));
    // Part of it may be awake already.
    assert!(device.wake_up(Some(POOL)).unwrap() <= slept);
    assert_eq!(device.asleep_bytes(), 0);
    assert_eq!(driver.mapped_bytes(0), before);
    assert!(device.deallocate(private) && device.deallocate(default));
    device.check_consistency().unwrap();
}

#[test]
fn a_checkpoint_is_not_restored_into_a_pool_that_sleeps() {
    let (_, device) = device_with(GIB, VIRTUAL);
    device.create_or_incref_pool(POOL, false).unwrap();
    let saved = [40 * MIB, 700].map(|bytes| pool_address(&device, bytes));
    let checkpoint = device.checkpoint(POOL).unwrap();
    let freed = saved[0];
    assert!(device.deallocate(freed));
    let later = pool_address(&device, 3 * MIB);
    device.sleep(Some(POOL)).unwrap();
    let (before, asleep) = (device.stats().0, device.asleep_bytes());
    let error = device.restore(&checkpoint).unwrap_err();
    assert!(matches!(error, AllocError::Sleep { .. }), "{error}");
    let refused = device.allocate_in(MIB, S0, POOL, None).unwrap_err();
    assert_eq!(error.to_string(), refused.to_string());
    device.check_consistency().unwrap();
    let after = device.stats().0;
    assert_eq!(before.allocated_bytes, after.allocated_bytes);
    assert_eq!(device.asleep_bytes(), asleep);
    assert!(device.describe_block(later).is_some(), "still live");
    device.wake_up(Some(POOL)).unwrap();
    let restored = device.restore(&checkpoint).unwrap();
    assert!(restored.freed.contains(&later) && restored.allocated.contains(&freed));
    device.check_consistency().unwrap();
    assert!(saved.iter().all(|addr| device.deallocate(*addr)));
}

#[test]
fn an_unknown_pool_and_a_capture_are_refused() {
    let (driver, device) = device_with(GIB, VIRTUAL);
    assert!(matches!(
        device.sleep(Some(POOL)),
        Err(AllocError::UnknownPool { pool: POOL })
    ));
    assert!(matches!(
        device.wake_up(Some(POOL)),
        Err(AllocError::UnknownPool { pool: POOL })
    ));
    device.allocate(MIB, S0).unwrap();
    driver.set_capturing(true);
    device.mark_capture_begin();
    assert!(matches!(device.sleep(None), Err(AllocError::Sleep { .. })));
    assert_eq!(device.asleep_bytes(), 0);
}

#[test]
fn fixed_segments_keep_what_is_in_use() {
    let (driver, device) = device_with(GIB, "");
    let block = device.allocate(100 * MIB, S0).unwrap();
    let idle = device.allocate(60 * MIB, S0).unwrap();
    assert!(device.deallocate(idle));
    assert_eq!(device.sleep(None).unwrap(), 0);
    assert_eq!(driver.held(0).0, 1);
    assert!(device.allocate(MIB, S0).is_ok());
    assert!(device.deallocate(block));
}

#[test]
fn each_failing_call_leaves_all_pages_findable() {
    for failing in 0..60 {
        let (driver, device) = device_with(GIB, VIRTUAL);
        let blocks = [1, 30, 50].map(|mib| device.allocate(mib * MIB, S0).unwrap());
        driver.fail_call(failing, FAILURE);
        let failed = device.sleep(None).is_err() | device.wake_up(None).is_err();
        assert!(failed || driver.withdraw_failure(), "call {failing}");
        device.check_consistency().unwrap();
        device.wake_up(None).unwrap();
        assert_eq!(device.asleep_bytes(), 0, "call {failing}");
        device.check_consistency().unwrap();
        for addr in blocks {
            assert!(device.deallocate(addr));
        }
        device.empty_cache(MempoolId::DEFAULT).unwrap();
        assert_eq!(
            (driver.held(0), driver.held_virtual(0)),
            ((0, 0), (0, 0)),
            "call {failing}"
        );
    }
}

/// A pool that nobody uses, with memory, and what happens while the device is waited for to put it to sleep.
fn sleep_while(
    happens: impl FnOnce(&DeviceAllocator, &FakeDriver) + Send + 'static,
) -> (
    Arc<FakeDriver>,
    Arc<DeviceAllocator>,
    Result<usize, AllocError>,
) {
    let (driver, device) = device_with(256 * MIB, VIRTUAL);
    let device = Arc::new(device);
    device.create_or_incref_pool(POOL, false).unwrap();
    let addr = pool_address(&device, 40 * MIB);
    assert!(device.deallocate(addr));
    let (other, its_driver) = (device.clone(), driver.clone());
    driver.meanwhile("synchronize_device", move || happens(&other, &its_driver));
    let slept = device.sleep(Some(POOL));
    device.check_consistency().unwrap();
    (driver, device, slept)
}

#[test]
fn a_pool_made_in_the_place_of_another_stays_awake() {
    const NEW: MempoolId = MempoolId {
        first: 0,
        second: 2,
    };
    let (driver, device, slept) = sleep_while(|other, _| {
        other.release_pool(POOL).unwrap();
        other.empty_cache(MempoolId::DEFAULT).unwrap();
        assert!(!other.has_pool(POOL));
        other.create_or_incref_pool(NEW, false).unwrap();
        other.allocate_in(40 * MIB, S0, NEW, None).unwrap();
    });
    assert_eq!((slept.unwrap(), device.asleep_bytes()), (0, 0));
    assert_eq!(driver.mapped_bytes(0), 48 * MIB);
    device.allocate_in(MIB, S0, NEW, None).unwrap();
}

#[test]
fn a_capture_that_begins_while_the_device_is_waited_for_is_left_alone() {
    let (_, device, slept) = sleep_while(|other, _| other.mark_capture_begin());
    assert!(matches!(slept, Err(AllocError::Sleep { .. })));
    assert_eq!(device.asleep_bytes(), 0);
}

#[test]
fn memory_that_is_still_mapped_elsewhere_stays_until_its_last_use_there() {
    let (driver, device) = device_with(256 * MIB, VIRTUAL);
    let device = Arc::new(device);
    device.create_or_incref_pool(POOL, false).unwrap();
    let old = device.allocate(200 * MIB, S0).unwrap();
    driver.set_others(0, 48 * MIB);
    let (other, its_driver) = (device.clone(), driver.clone());
    driver.meanwhile("synchronize_device", move || {
        // Freed under running work, and taken by the pool at another address.
        its_driver.submit(StreamToken { id: 0, ..SIDE });
        assert!(other.deallocate(old));
        pool_address(&other, 200 * MIB);
    });
    assert_eq!(device.sleep(Some(POOL)).unwrap(), 208 * MIB);
    device.check_consistency().unwrap();
    assert_eq!(device.asleep_bytes(), 208 * MIB);
    assert!(driver.mapping(0, old).is_some(), "work still runs there");
    // Nobody gets it before that is over, and with the next wait it goes.
    assert_eq!(driver.held_virtual(0).0, 26);
    device.empty_cache(MempoolId::DEFAULT).unwrap();
    assert_eq!(driver.held_virtual(0).0, 0);
    device.check_consistency().unwrap();
    assert_eq!(device.wake_up(None).unwrap(), 208 * MIB);
    device.check_consistency().unwrap();
}

#[test]
fn a_pool_released_asleep_is_forgotten_without_waking_up() {
    let (driver, device) = device_with(256 * MIB, VIRTUAL);
    device.create_or_incref_pool(POOL, false).unwrap();
    let blocks = [40 * MIB, 700].map(|bytes| pool_address(&device, bytes));
    device.sleep(Some(POOL)).unwrap();
    device.release_pool(POOL).unwrap();
    device.empty_cache(POOL).unwrap();
    device.check_consistency().unwrap();
    assert!(device.asleep_bytes() > 0, "blocks in use");
    assert!(blocks.iter().all(|addr| device.deallocate(*addr)));
    // There is no room to wake it.
    driver.set_others(0, 256 * MIB);
    device.empty_cache(POOL).unwrap();
    device.check_consistency().unwrap();
    assert!(!device.has_pool(POOL));
    assert_eq!(device.asleep_bytes(), 0);
    assert_eq!(device.stats().0.reserved_bytes.current(), 0);
    assert_eq!(driver.held_virtual(0), (0, 0));
    assert_eq!(device.wake_up(None).unwrap(), 0);
}

#[test]
fn memory_that_sleeps_leaves_room_under_the_limit() {
    let (driver, device) = device_with(256 * MIB, VIRTUAL);
    device.create_or_incref_pool(POOL, false).unwrap();
    device.set_memory_fraction(0.5).unwrap();
    let private = pool_address(&device, 100 * MIB - 4096);
    device.sleep(Some(POOL)).unwrap();
    let other = device.allocate(100 * MIB - 4096, S0).unwrap();
    let error = device.wake_up(Some(POOL)).unwrap_err();
    assert!(error.to_string().contains("limit"), "{error}");
    device.check_consistency().unwrap();
    assert!(driver.held(0).1 <= 128 * MIB);
    assert!(device.deallocate(other));
    device.wake_up(Some(POOL)).unwrap();
    assert!(driver.spans(0, private, 100 * MIB - 4096).is_some());
    assert!(driver.held(0).1 <= 128 * MIB);
}

#[test]
fn what_was_freed_asleep_needs_no_memory_to_wake_up() {
    let (driver, device) = device_with(256 * MIB, VIRTUAL);
    let [kept, freed] = [16 * MIB, 200 * MIB].map(|bytes| {
        let addr = device.allocate(bytes - 4096, S0);
        addr.unwrap()
    });
    device.sleep(None).unwrap();
    assert!(device.deallocate(freed));
    // There is room for what is still in use alone.
    driver.set_others(0, 232 * MIB);
    device.wake_up(None).unwrap();
    assert_eq!(device.asleep_bytes(), 0);
    device.check_consistency().unwrap();
    assert!(driver.spans(0, kept, 16 * MIB - 4096).is_some());
}

#[test]
fn nothing_waits_for_the_device_to_wake_up_during_a_capture() {
    let (driver, device) = device_with(128 * MIB, VIRTUAL);
    device.create_or_incref_pool(POOL, false).unwrap();
    let private = pool_address(&device, 60 * MIB);
    let slept = device.sleep(Some(POOL)).unwrap();
    let idle = device.allocate(100 * MIB, S0).unwrap();
    assert!(device.deallocate(idle));
    device.mark_capture_begin();
    driver.set_capturing(true);
    let waited = Arc::new(AtomicBool::new(false));
    let noted = waited.clone();
    driver.meanwhile("synchronize_device", move || noted.store(true, Relaxed));
    let error = device.wake_up(Some(POOL)).unwrap_err();
    assert!(matches!(error, AllocError::Driver(_)), "{error}");
    assert!(!waited.load(Relaxed));
    assert!(device.asleep_bytes() > 0);
    device.check_consistency().unwrap();
    // After it the idle memory goes back.
    driver.set_capturing(false);
    device.mark_capture_end().unwrap();
    device.wake_up(Some(POOL)).unwrap();
    assert!(waited.load(Relaxed));
    assert_eq!(device.asleep_bytes(), 0);
    assert_eq!(driver.mapped_bytes(0), slept);
    assert!(driver.mapping(0, private).is_some());
    device.check_consistency().unwrap();
}
