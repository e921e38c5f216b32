//! Memory that another thread holds for a moment, on its way to or from the driver: who finds none waits for it.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::*;
use npualloc::error::Result;

/// While the next call of a kind is under way another thread asks for memory. The call goes on a moment after the
/// device was waited for `waits` times in all: the last that is done before the thread finds none.
fn ask_during(
    (driver, device): (&Arc<FakeDriver>, &Arc<DeviceAllocator>),
    call: &'static str,
    waits: u64,
    bytes: usize,
) -> mpsc::Receiver<JoinHandle<Result<usize>>> {
    let (asked, answers) = mpsc::channel();
    let (its_driver, other) = (driver.clone(), device.clone());
    let waits = driver.calls("synchronize_device") + waits;
    driver.meanwhile(call, move || {
        let thread = std::thread::spawn(move || other.allocate(bytes, S0));
        let start = Instant::now();
        while its_driver.calls("synchronize_device") < waits {
            assert!(start.elapsed() < Duration::from_secs(20), "never waits");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(10));
        asked.send(thread).expect("somebody waits");
    });
    answers
}

fn served(answers: &mpsc::Receiver<JoinHandle<Result<usize>>>) {
    let thread = answers.recv().expect("asked");
    let answer = thread.join().expect("no panic");
    answer.expect("what the other thread held");
}

#[test]
fn pages_that_a_request_gives_up_serve_others() {
    let (driver, device) = device_without_aliasing(24 * MIB);
    let device = Arc::new(device);
    let addr = device.allocate(16 * MIB - 4096, S0).expect("fits");
    driver.set_others(0, 8 * MIB);
    assert!(device.deallocate(addr));
    let asked = ask_during((&driver, &device), "malloc_physical", 2, 8 * MIB - 4096);
    device
        .allocate(24 * MIB - 4096, S0)
        .expect_err("two pages are free");
    served(&asked);
    device.check_consistency().expect("consistent");
}

#[test]
fn memory_on_its_way_back_to_the_driver_serves_others() {
    for (config, call) in [("", "free"), ("expandable_segments:True", "free_physical")] {
        let (driver, device) = device_with(128 * MIB, config);
        let device = Arc::new(device);
        let addr = device.allocate(100 * MIB, StreamKey(1)).expect("fits");
        assert!(device.deallocate(addr));
        let asked = ask_during((&driver, &device), call, 3, 100 * MIB);
        device.empty_cache(MempoolId::DEFAULT).expect("works");
        served(&asked);
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn a_block_whose_event_another_thread_waits_for_is_waited_for() {
    let (driver, device) = device(128 * MIB);
    let device = Arc::new(device);
    let addr = device.allocate(100 * MIB, S0).expect("fits");
    device.record_stream(addr, SIDE);
    driver.submit(SIDE);
    assert!(device.deallocate(addr));
    let asked = ask_during((&driver, &device), "event_synchronize", 2, 100 * MIB);
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    served(&asked);
    device.check_consistency().expect("consistent");
}

#[test]
fn nobody_waits_for_good() {
    let (driver, device) = device(128 * MIB);
    let device = Arc::new(device);
    let addr = device.allocate(100 * MIB, StreamKey(1)).expect("fits");
    assert!(device.deallocate(addr));
    let other = device.clone();
    driver.meanwhile("free", move || {
        other.allocate(100 * MIB, S0).expect_err("still held");
    });
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    device.allocate(100 * MIB, S0).expect("fits");
    device.check_consistency().expect("consistent");
}
