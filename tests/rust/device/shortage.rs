//! Requests for which there is memory, but not where it is looked for first.

use crate::*;

#[test]
fn a_pool_for_overflow_is_asked_again_once_its_blocks_were_waited_for() {
    for config in ["", "expandable_segments:True"] {
        let (driver, device) = device_with(64 * MIB, config);
        device.create_or_incref_pool(POOL, false).expect("new");
        device.set_use_on_oom(POOL, true);
        let inside = device.allocate_in(40 * MIB, S0, POOL, None).expect("fits");
        assert!(device.record_stream(inside, SIDE));
        driver.submit(SIDE);
        assert!(device.deallocate(inside));
        let found = device.allocate(40 * MIB, S0);
        assert_eq!(found.expect("in the pool"), inside, "{config}");
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn a_segment_that_another_thread_got_meanwhile_serves() {
    let (driver, device) = device(40 * MIB);
    let device = Arc::new(device);
    let first = device.allocate(4 * MIB, S1).expect("fits");
    let second = device.allocate(4 * MIB, S2).expect("fits");
    assert!(device.deallocate(first) && device.deallocate(second));
    // The first shortage.
    let third = device.allocate(30 * MIB, S1).expect("fits");
    assert!(device.deallocate(third));
    let (its_driver, other) = (Arc::downgrade(&driver), Arc::downgrade(&device));
    driver.meanwhile("free", move || {
        let driver = its_driver.upgrade().expect("it is asked");
        driver.set_others(0, 20 * MIB);
        driver.meanwhile("malloc", move || {
            let other = other.upgrade().expect("it is asked");
            other.allocate(4 * MIB, S0).expect("fits");
        });
    });
    device
        .allocate(4 * MIB, S0)
        .expect("there is room behind the other's block");
    device.check_consistency().expect("consistent");
}

#[test]
fn streams_share_as_soon_as_the_driver_has_no_more() {
    let (_driver, device) = device_with(66 * MIB, "expandable_segments:True");
    // Of three pages 7 MiB are left; all others are the second stream's.
    device.allocate(17 * MIB - 4096, S0).expect("fits");
    device.allocate(40 * MIB - 4096, S1).expect("fits");
    device
        .allocate(5 * MIB, S2)
        .expect("fits behind the first stream's block");
    device.check_consistency().expect("consistent");
}

#[test]
fn what_a_try_of_the_driver_left_behind_is_given_back_first() {
    for config in [
        settings("expandable_segments:True"),
        settings_by_default(""),
    ] {
        let driver = Arc::new(FakeDriver::new(64 * MIB));
        let device = DeviceAllocator::new(DeviceId(0), driver.clone(), config, 32).expect("device");
        let failing = Arc::downgrade(&driver);
        driver.meanwhile("unmap", move || {
            let driver = failing.upgrade().expect("it is asked");
            driver.fail_call(0, 507_000);
        });
        device
            .allocate(64 * MIB - 4096, S0)
            .expect("fits once the try is undone");
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn two_tries_of_the_driver_at_once_leave_nothing() {
    let (driver, device) = device_with(512 * MIB, "expandable_segments:True");
    let device = Arc::new(device);
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let (its_driver, other) = (driver.clone(), device.clone());
    let third = Arc::new(std::sync::Mutex::new(None));
    let started = third.clone();
    driver.meanwhile("reserve_address", move || {
        // The first try is under way. Another thread empties the cache, and a third one would try, too.
        other.empty_cache(MempoolId::DEFAULT).expect("works");
        let (entered, seen) = std::sync::mpsc::channel();
        its_driver.meanwhile("reserve_address", move || {
            entered.send(()).expect("waited for");
            wait.recv().expect("told to");
        });
        let device = other.clone();
        let thread = std::thread::spawn(move || device.allocate(MIB, S1).expect("fits"));
        *started.lock().expect("free") = Some(thread);
        seen.recv().expect("tries");
        let failing = Arc::downgrade(&its_driver);
        its_driver.meanwhile("unmap", move || {
            let driver = failing.upgrade().expect("it is asked");
            driver.fail_call(0, 507_000);
        });
    });
    let first = device.allocate(MIB, S0).expect("fits");
    go_on.send(()).expect("waited for");
    let thread = third.lock().expect("free").take().expect("started");
    let second = thread.join().expect("served");
    assert!(device.deallocate(first) && device.deallocate(second));
    for _ in 0..2 {
        device.empty_cache(MempoolId::DEFAULT).expect("works");
    }
    device.check_consistency().expect("consistent");
    assert_eq!(driver.held_virtual(0), (0, 0));
    assert_eq!(device.idle_physical_bytes(), 0);
}
