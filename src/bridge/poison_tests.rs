//! What C++ sees of a panic.

use std::sync::Arc;

use super::allocator::Allocator;
use super::ffi::{DeviceStats, MempoolId, Status};
use super::outcome::{last_failure, take_error_message};
use crate::config::{DebugOptions, Settings};
use crate::driver::fake::FakeDriver;
use crate::driver::{Driver, StreamToken};
use crate::ids::DeviceId;
use crate::registry::Registry;

const MIB: usize = 1 << 20;
const POOL: MempoolId = MempoolId {
    first: 1,
    second: 2,
};
const EVERYTHING: MempoolId = MempoolId {
    first: 0,
    second: 0,
};
const SIDE: StreamToken = StreamToken {
    id: 7,
    device: 0,
    reserved: 0,
};

/// An allocator of two devices, each with a block in use, whose addresses are the rest.
fn allocator() -> (Arc<FakeDriver>, Allocator, [usize; 2]) {
    let driver = Arc::new(FakeDriver::new(1 << 30));
    let settings = Settings::parse("expandable_segments:False").expect("valid");
    let allocator = Allocator::over(Registry::new(driver.clone(), settings, 32));
    assert_eq!(allocator.init(2).status, Status::Ok);
    let live = [0, 1].map(|device| allocator.allocate(device, MIB, 0));
    assert!(!live.contains(&0));
    (driver, allocator, live)
}

/// The text of the last call's failure, which is an internal error.
fn internal_error() -> String {
    assert_eq!(last_failure().status, Status::Internal);
    take_error_message()
}

/// Device 0 panics while memory is asked for.
fn poison(driver: &FakeDriver, allocator: &Allocator) -> String {
    driver.meanwhile("malloc", || panic!("a driver that panics"));
    assert_eq!(allocator.allocate(0, 64 * MIB, 0), 0);
    internal_error()
}

#[test]
fn every_error_of_a_poisoned_device_is_that_of_the_first_panic() {
    let (driver, allocator, live) = allocator();
    let error = poison(&driver, &allocator);
    for part in ["device 0", "a driver that panics", "restart the process"] {
        assert!(error.contains(part), "{error}");
    }
    for bytes in [100, 64 * MIB] {
        assert_eq!(allocator.allocate(0, bytes, 0), 0);
        assert_eq!(internal_error(), error);
    }
    let calls: [&dyn Fn() -> Status; 7] = [
        &|| allocator.empty_cache(0, 0).status,
        &|| allocator.allocate_in(0, 100, 0, POOL, 0).status,
        &|| allocator.reset_peak_stats(0).status,
        &|| allocator.create_or_incref_pool(0, POOL, false).status,
        &|| allocator.mark_capture_begin(0).status,
        &|| allocator.sleep(0, POOL, true).status,
        &|| allocator.clear_damaged(live[0]).status,
    ];
    for call in calls {
        assert_eq!(call(), Status::Internal);
        assert_eq!(take_error_message(), error);
    }
    let broken = allocator.check_consistency().expect_err("poisoned");
    assert_eq!(broken.to_string(), error);
    assert_eq!(driver.bugs(), [error]);
    // What destructors call.
    for _ in 0..2 {
        assert!(allocator.deallocate(live[0]));
        assert!(allocator.record_stream(live[0], SIDE));
        assert_eq!(allocator.erase_stream(live[0], SIDE).status, Status::Ok);
        assert_eq!(allocator.set_use_on_oom(0, POOL, false).status, Status::Ok);
        assert_eq!(allocator.release_pool(0, POOL).status, Status::Ok);
        for pool in [POOL, EVERYTHING] {
            assert_eq!(allocator.empty_pool(0, pool, 0).status, Status::Ok);
        }
    }
    // What only looks.
    let handle = allocator.describe_block(live[0]).handle;
    assert_eq!(allocator.describe_handle(handle).addr, live[0]);
    assert!(allocator.cache_info(0).total > 0);
    assert!(!allocator.snapshot(0, POOL).segments().iter().any(|_| true));
    assert_eq!(allocator.snapshot(0, EVERYTHING).segments().len(), 1);
    assert!(!allocator.ladder(0).is_empty());
    let mut stats = DeviceStats::default();
    assert_eq!(allocator.device_stats(0, &mut stats).status, Status::Ok);
    assert_eq!(stats.allocation.aggregate.current, 1);
    assert_eq!(driver.bugs().len(), 1);
}

#[test]
fn other_devices_go_on() {
    let (driver, allocator, live) = allocator();
    poison(&driver, &allocator);
    let addr = allocator.allocate(1, 64 * MIB, 0);
    assert_ne!(addr, 0);
    for addr in [addr, live[1]] {
        assert!(allocator.record_stream(addr, SIDE));
        assert_eq!(allocator.erase_stream(addr, SIDE).status, Status::Ok);
        assert_eq!(allocator.clear_damaged(addr).status, Status::Ok);
        assert!(allocator.deallocate(addr));
    }
    let settings = allocator.apply_any_settings("garbage_collection_threshold:0.5");
    assert_eq!(settings.status, Status::Ok);
    assert_eq!(allocator.record_history(true, 100, 3).status, Status::Ok);
    assert!(allocator.is_history_enabled(1));
    assert_eq!(allocator.empty_cache(1, 0).status, Status::Ok);
    let mut stats = DeviceStats::default();
    assert_eq!(allocator.device_stats(1, &mut stats).status, Status::Ok);
    assert_eq!(stats.reserved_bytes.aggregate.current, 0);
}

#[test]
fn a_panic_in_a_free_does_not_end_the_program() {
    let (driver, allocator, live) = allocator();
    assert!(allocator.record_stream(live[0], SIDE));
    driver.submit(SIDE);
    driver.meanwhile("event_create", || panic!("a driver that panics"));
    assert!(allocator.deallocate(live[0]));
    assert_eq!(driver.bugs().len(), 1);
    assert_eq!(allocator.allocate(0, MIB, 0), 0);
    assert!(internal_error().contains("a driver that panics"));
}

#[test]
fn a_panic_while_somebody_looks_at_a_poisoned_device_is_the_same_error() {
    let (driver, allocator, _) = allocator();
    let error = poison(&driver, &allocator);
    let looks = || -> Result<(), _> {
        allocator.guard(|| {
            let device = allocator.registry.device(0)?;
            device.read_counters(|_, _, _| panic!("another"));
            Ok(())
        })
    };
    assert!(looks().is_err());
    assert_eq!(internal_error(), error);
    assert!(allocator.cache_info(0).total > 0);
    assert_eq!(driver.bugs().len(), 1);
}

#[test]
fn a_panic_outside_of_any_lock_poisons_nothing() {
    let (driver, allocator, _) = allocator();
    driver.meanwhile("memory_info", || panic!("a driver that panics"));
    let outcome = allocator.set_memory_fraction(0, 0.5);
    assert_eq!(outcome.status, Status::Internal);
    assert_eq!(
        take_error_message(),
        "internal error: panic: a driver that panics"
    );
    assert_ne!(allocator.allocate(0, MIB, 0), 0);
    assert_eq!(driver.bugs().len(), 0);
}

#[test]
fn a_process_exits_with_a_poisoned_device() {
    let (driver, allocator, live) = allocator();
    poison(&driver, &allocator);
    allocator.begin_process_exit();
    assert!(live.into_iter().all(|addr| allocator.deallocate(addr)));
}

/// What is freed may be in use by somebody else, as the bookkeeping can't be relied on.
#[test]
fn the_debug_mode_leaves_the_memory_of_a_poisoned_device_alone() {
    let driver = Arc::new(FakeDriver::backed(1 << 30));
    let settings = Settings::parse("expandable_segments:False").expect("valid");
    let options = DebugOptions::parse("poison,redzones,history").expect("valid");
    let registry = Registry::with_debug(driver.clone(), settings, 32, options);
    let allocator = Allocator::over(registry);
    assert_eq!(allocator.init(1).status, Status::Ok);
    let live = allocator.allocate(0, MIB, 0);
    let (contents, mut bytes) = (driver.contents().expect("backed"), [0; 64]);
    contents.fill(DeviceId(0), live, 64, 7).expect("works");
    poison(&driver, &allocator);
    for _ in 0..2 {
        assert!(allocator.deallocate(live));
    }
    contents.read(DeviceId(0), live, &mut bytes).expect("works");
    assert_eq!(bytes, [7; 64]);
}
