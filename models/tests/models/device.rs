//! The lock of a device given back around calls of the driver: what other threads see and do meanwhile.
//! `check_consistency` in between sees every state that is ever under the lock.

use std::sync::Arc;

use npualloc::config::{DefaultEngine, Settings};
use npualloc::device::DeviceAllocator;
use npualloc::driver::StreamToken;
use npualloc::driver::fake::FakeDriver;
use npualloc::ids::{DeviceId, MempoolId, StreamKey};

use crate::{every_order, joined, thread};

const MIB: usize = 1 << 20;
const S0: StreamKey = StreamKey(0);
const SIDE: StreamToken = StreamToken {
    id: 7,
    device: 0,
    reserved: 0,
};
const FIXED: &str = "expandable_segments:False";
const VIRTUAL: &str = "expandable_segments:True";
/// The driver is tried, and decides.
const OPEN: &str = "";

type Parts = (Arc<FakeDriver>, Arc<DeviceAllocator>);

fn parts(capacity: usize, config: &str) -> Parts {
    let driver = Arc::new(FakeDriver::new(capacity));
    let mut settings = Settings::parse(config).expect("valid");
    settings.default_engine = DefaultEngine::Probe;
    let device = DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32);
    (driver, Arc::new(device.expect("a device")))
}

/// Runs `body` with the device on a thread of its own.
fn on<T: Send + 'static>(
    device: &Arc<DeviceAllocator>,
    body: impl FnOnce(&DeviceAllocator) -> T + Send + 'static,
) -> loom::thread::JoinHandle<T> {
    let device = device.clone();
    thread(move || body(&device))
}

fn nothing_is_left((driver, device): &Parts) {
    device.check_consistency().expect("consistent");
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    device.check_consistency().expect("consistent");
    assert_eq!((driver.held(0), driver.held_virtual(0)), ((0, 0), (0, 0)));
}

/// Two threads that get memory at once; one of them recounts before.
fn two_grow(config: &'static str, preemptions: usize) {
    every_order(preemptions, move || {
        let parts = parts(64 * MIB, config);
        let (_, device) = &parts;
        let grow = |device: &DeviceAllocator| device.allocate(12 * MIB, S0).expect("fits");
        let one = on(device, grow);
        device.check_consistency().expect("consistent");
        let other = grow(device);
        let one = joined(one);
        assert!(
            one + 12 * MIB <= other || other + 12 * MIB <= one,
            "blocks overlap"
        );
        assert!(device.deallocate(one) && device.deallocate(other));
        nothing_is_left(&parts);
    });
}

#[test]
fn fixed_segments_are_obtained_at_once() {
    two_grow(FIXED, 3);
}

#[test]
fn the_driver_is_tried_once_by_two() {
    two_grow(OPEN, 2);
}

#[test]
fn virtual_segments_grow_at_once() {
    two_grow(VIRTUAL, 2);
}

/// The block is in use on another stream: its event is recorded with the lock released.
#[test]
fn a_block_is_not_reused_while_its_event_is_recorded() {
    every_order(3, || {
        let parts = parts(64 * MIB, FIXED);
        let (driver, device) = &parts;
        let used = device.allocate(4096, S0).expect("fits");
        assert!(device.record_stream(used, SIDE));
        driver.submit(SIDE);
        let free = on(device, move |device| assert!(device.deallocate(used)));
        let addr = device.allocate(4096, S0).expect("fits");
        assert_ne!(addr, used, "another stream still uses it");
        device.check_consistency().expect("consistent");
        assert!(device.deallocate(addr));
        joined(free);
        driver.finish(SIDE);
        device
            .allocate(4096, S0)
            .map(|addr| device.deallocate(addr))
            .expect("fits");
        nothing_is_left(&parts);
    });
}

/// What is freed while the device is waited for may be in use: it stays.
fn emptied_while_it_is_used(config: &'static str) {
    every_order(3, move || {
        let parts = parts(64 * MIB, config);
        let (driver, device) = &parts;
        let old = device.allocate(12 * MIB, S0).expect("fits");
        assert!(device.deallocate(old));
        let empty = on(device, |device| device.empty_cache(MempoolId::DEFAULT));
        let addr = device.allocate(12 * MIB, S0).expect("fits");
        device.check_consistency().expect("consistent");
        let there = || driver.spans(0, addr, 12 * MIB).is_some();
        assert!(there(), "a live block has no memory");
        joined(empty).expect("works");
        assert!(there(), "a live block lost its memory");
        assert!(device.deallocate(addr));
        nothing_is_left(&parts);
    });
}

#[test]
fn a_cache_of_fixed_segments_is_emptied_while_it_is_used() {
    emptied_while_it_is_used(FIXED);
}

#[test]
fn a_cache_of_virtual_segments_is_emptied_while_it_is_used() {
    emptied_while_it_is_used(VIRTUAL);
}

/// The device is full: pages of free blocks move, and two threads want them. One gets them, also when each
/// holds what the other lacks for a time.
fn two_want_pages_that_move(aliasing: bool) {
    every_order(2, move || {
        let page = if aliasing { 8 * MIB } else { 10 * MIB };
        let parts = parts(4 * page, VIRTUAL);
        let (driver, device) = &parts;
        if !aliasing {
            driver.refuse_aliasing();
        }
        let held = [0; 4].map(|_| device.allocate(page - 4096, S0).expect("fits"));
        assert!(device.deallocate(held[0]) && device.deallocate(held[2]));
        let one = on(device, move |device| {
            device.allocate(2 * page - MIB, S0).ok()
        });
        let other = device.allocate(page + MIB, S0).ok();
        device.check_consistency().expect("consistent");
        let got: Vec<usize> = [joined(one), other].into_iter().flatten().collect();
        assert_eq!(got.len(), 1, "there is room for one of them");
        device.check_consistency().expect("consistent");
        for addr in got.into_iter().chain([held[1], held[3]]) {
            assert!(device.deallocate(addr));
        }
        nothing_is_left(&parts);
    });
}

#[test]
fn two_threads_want_pages_that_move() {
    two_want_pages_that_move(false);
}

#[test]
fn two_threads_want_pages_with_two_addresses() {
    two_want_pages_that_move(true);
}

/// A failing call, whichever it is, while another thread works: nothing is lost.
#[test]
fn a_failing_call_loses_nothing() {
    for nth in 0..6 {
        every_order(2, move || {
            let parts = parts(64 * MIB, FIXED);
            let (driver, device) = &parts;
            let old = device.allocate(12 * MIB, S0).expect("fits");
            driver.fail_call(nth, 507_899);
            let free = on(device, move |device| assert!(device.deallocate(old)));
            let _ = device.empty_cache(MempoolId::DEFAULT);
            let got = device.allocate(12 * MIB, S0);
            joined(free);
            driver.withdraw_failure();
            device.check_consistency().expect("consistent");
            if let Ok(addr) = got {
                assert!(device.deallocate(addr));
            }
            nothing_is_left(&parts);
        });
    }
}

/// Threads that use leases, one of them to free what the other was handed out, while a third recounts.
#[test]
fn leases_come_back_to_who_looks() {
    every_order(2, || {
        let parts = parts(4096 * MIB, OPEN);
        let (_, device) = &parts;
        // Memory that is free, and room below the peaks.
        let blocks = [0; 4].map(|_| device.allocate(4096, S0).expect("fits"));
        for addr in blocks {
            assert!(device.deallocate(addr));
        }
        let passed = device.allocate(4096, S0).expect("fits");
        device.assume_crowd();
        let come_and_go = |device: &DeviceAllocator| {
            let first = device.allocate(4096, S0).expect("fits");
            assert!(device.deallocate(first));
            let second = device.allocate(4096, S0).expect("fits");
            assert!(device.deallocate(second));
            assert!(!device.deallocate(second), "freed twice");
        };
        let one = on(device, come_and_go);
        let other = on(device, move |device| {
            assert!(device.deallocate(passed));
            device.check_consistency().expect("consistent");
        });
        joined(one);
        joined(other);
        let (stats, _) = device.stats();
        assert_eq!(stats.allocation.current(), 0);
        assert_eq!(stats.allocation.aggregate().allocated, 7);
        nothing_is_left(&parts);
    });
}
