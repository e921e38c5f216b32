//! After a panic in the middle of a change a device hands nothing out and takes nothing back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::*;
use npualloc::lease::act_as;
use npualloc::sync::Refused;

fn unwinds<T>(call: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(call)).is_err()
}

/// Without a message of its own.
fn is_refused<T>(call: impl FnOnce() -> T) -> bool {
    let outcome = catch_unwind(AssertUnwindSafe(call));
    outcome.is_err_and(|panic| panic.is::<Refused>())
}

fn device(text: &str) -> (Arc<FakeDriver>, DeviceAllocator) {
    let (driver, settings) = (Arc::new(FakeDriver::new(GIB)), settings_by_default(text));
    let device = DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device");
    (driver, device)
}

/// What would serve a request from cache, or take a block back, does not.
fn assert_poisoned(device: &DeviceAllocator, live: usize, bytes: usize) {
    assert!(device.is_poisoned());
    let before = device.stats().0;
    for _ in 0..2 {
        assert!(is_refused(|| device.allocate(bytes, S0)));
        assert!(!device.deallocate(live));
        assert!(!device.record_stream(live, SIDE));
        assert!(!device.erase_stream(live, SIDE));
    }
    assert!(is_refused(|| device.empty_cache(MempoolId::DEFAULT)));
    assert!(is_refused(|| device.check_consistency()));
    assert!(is_refused(|| device.sleep(None)));
    let view = device.describe_block(live).expect("still to be seen");
    assert_eq!(view.addr, live);
    let segments = device.snapshot(MempoolId::DEFAULT);
    let blocks = segments.iter().flat_map(|segment| &segment.blocks);
    assert!(blocks.filter(|block| block.allocated).count() > 0);
    assert!(device.cache_info().0 > 0);
    assert_eq!(device.stats().0, before);
}

#[test]
fn a_driver_that_panics_in_the_middle_of_a_change_poisons_the_device() {
    for (text, call) in [
        ("expandable_segments:False", "malloc"),
        ("expandable_segments:True", "malloc_physical"),
        ("expandable_segments:True", "map"),
    ] {
        let (driver, device) = device(text);
        let live = device.allocate(SIZE, S0).expect("fits");
        let free = device.allocate(4096, S0).expect("fits");
        assert!(device.deallocate(free));
        driver.meanwhile(call, || panic!("a driver that panics"));
        assert!(unwinds(|| device.allocate(2 * SIZE, S0)), "{call}");
        let calls = driver.total_calls();
        assert_poisoned(&device, live, 4096);
        assert_eq!(driver.total_calls(), calls);
    }
}

#[test]
fn a_panic_with_the_lock_poisons_the_device() {
    let (driver, device) = device("expandable_segments:False");
    let live = device.allocate(4096, S0).expect("fits");
    let used = device.allocate(4096, S0).expect("fits");
    assert!(device.record_stream(used, SIDE));
    driver.submit(SIDE);
    assert!(device.deallocate(used));
    driver.meanwhile("event_query", || panic!("a driver that panics"));
    assert!(unwinds(|| device.allocate(4096, S0)));
    assert_poisoned(&device, live, 4096);
}

#[test]
fn a_block_that_comes_and_goes_comes_no_more() {
    let (driver, device) = device("expandable_segments:False");
    let live = device.allocate(SIZE, S0).expect("fits");
    for _ in 0..4 {
        let addr = device.allocate(4096, S0).expect("fits");
        assert!(device.deallocate(addr));
    }
    driver.meanwhile("malloc", || panic!("a driver that panics"));
    assert!(unwinds(|| device.allocate(SIZE, S1)));
    assert_poisoned(&device, live, 4096);
}

#[test]
fn a_thread_that_was_in_the_driver_meanwhile_is_refused_too() {
    let (driver, device) = device("expandable_segments:False");
    let device = Arc::new(device);
    let live = device.allocate(SIZE, S0).expect("fits");
    let other = device.clone();
    let its_driver = driver.clone();
    driver.meanwhile("malloc", move || {
        its_driver.meanwhile("malloc", || panic!("a driver that panics"));
        assert!(unwinds(|| other.allocate(SIZE, S2)));
    });
    assert!(is_refused(|| device.allocate(SIZE, S1)));
    assert!(device.is_poisoned());
    assert!(!device.deallocate(live));
}

#[test]
fn threads_that_want_the_lock_meanwhile_are_refused() {
    for crowded in [false, true] {
        let (driver, device) = device("");
        if crowded {
            device.assume_crowd();
        }
        driver.meanwhile("malloc_physical", || panic!("a driver that panics"));
        let device = &device;
        std::thread::scope(|scope| {
            let busy = |number: usize| {
                act_as(number);
                let stream = StreamKey(number);
                let come_and_go = || loop {
                    let addr = device.allocate(4096, stream).expect("fits");
                    device.deallocate(addr);
                };
                unwinds(come_and_go)
            };
            let threads = [1, 2, 3].map(|number| scope.spawn(move || busy(number)));
            assert!(unwinds(|| device.allocate(SIZE, S0)));
            assert!(threads.map(|thread| thread.join().expect("no panic")) == [true; 3]);
        });
        assert!(device.is_poisoned());
    }
}
