//! What free memory is waited for before it is looked at and painted.

use std::sync::{Arc, Mutex};

use crate::*;

#[test]
fn a_wait_for_one_device_is_none_for_another() {
    let bench = bench("redzones,poison");
    let _first = bench.allocate(1000);
    let addr = bench.allocate(1000);
    bench.driver.fail_call(0, UNSUPPORTED_CODE);
    bench.free(addr);
    bench.registry.allocate(1, 1000, S0).expect("fits");
    let settled = bench.driver.calls("settle");
    bench.allocate(1000);
    assert_eq!(bench.driver.calls("settle"), settled + 1);
}

#[test]
fn a_wait_that_is_under_way_serves_nobody_else() {
    let bench = bench("redzones,poison");
    let _first = bench.allocate(1000);
    let addr = bench.allocate(1000);
    bench.driver.fail_call(0, UNSUPPORTED_CODE);
    bench.free(addr);
    let Bench { driver, registry } = bench;
    let registry = Arc::new(registry);
    let waits = Arc::new(Mutex::new(0));
    let (other, its_driver, seen) = (registry.clone(), Arc::downgrade(&driver), waits.clone());
    driver.meanwhile("settle", move || {
        let driver = its_driver.upgrade().expect("it is asked");
        let before = driver.calls("settle");
        let allocate = move || other.allocate(0, 1000, S0).expect("fits");
        std::thread::spawn(allocate).join().expect("served");
        *seen.lock().expect("free") = driver.calls("settle") - before;
    });
    registry.allocate(0, 300_000, S0).expect("fits");
    assert_eq!(*waits.lock().expect("free"), 1);
}

#[test]
fn a_pool_that_graphs_may_replay_in_is_waited_for() {
    let bench = bench("redzones,poison");
    let device = bench.registry.device(0).expect("there");
    device
        .create_or_incref_pool(CAPTURE_POOL, false)
        .expect("new");
    let allocate = || bench.registry.allocate_in(0, 1000, S0, CAPTURE_POOL, None);
    let captured = allocate().expect("fits");
    bench.free(captured);
    bench.allocate(1000);
    // A replay may have been submitted by now.
    let settled = bench.driver.calls("settle");
    allocate().expect("fits");
    assert_eq!(bench.driver.calls("settle"), settled + 1);
}

#[test]
fn a_block_from_a_pool_for_overflow_is_not_poisoned() {
    let bench = over(FakeDriver::backed(256 << 20), "", "redzones,poison");
    let device = bench.registry.device(0).expect("there");
    device
        .create_or_incref_pool(CAPTURE_POOL, false)
        .expect("new");
    let inside = bench
        .registry
        .allocate_in(0, 200 << 20, S0, CAPTURE_POOL, None)
        .expect("fits");
    bench.free(inside);
    device.set_use_on_oom(CAPTURE_POOL, true);
    let served = bench.registry.allocate(0, 150 << 20, S0).expect("fits");
    assert_eq!(served, inside);
    bench.free(served);
    // As a replay does.
    bench.driver.write(inside, 1000, 1);
    bench.is_sound();
}
